// Shows the description that the server has of itself. Text is only ever set as text, never as markup.
"use strict";

const METHODS = ["get", "head", "post", "put", "patch", "delete"];

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function resolve(description, schema) {
  const name = schema && schema.$ref && schema.$ref.split("/").pop();
  return name ? description.components.schemas[name] : schema;
}

// A schema with the schemas it names in their places; one within itself is shown by name.
function expand(description, schema, seen = []) {
  if (Array.isArray(schema)) return schema.map((it) => expand(description, it, seen));
  if (!schema || typeof schema !== "object") return schema;
  if (schema.$ref) {
    if (seen.includes(schema.$ref)) return schema.$ref.split("/").pop();
    return expand(description, resolve(description, schema), [...seen, schema.$ref]);
  }
  const fields = Object.entries(schema).map(([key, value]) => [key, expand(description, value, seen)]);
  return Object.fromEntries(fields);
}

function content(description, parent, title, body) {
  for (const [kind, media] of Object.entries((body && body.content) || {})) {
    parent.append(element("p", `${title} (${kind})`, "quiet"));
    parent.append(element("pre", JSON.stringify(expand(description, media.schema), null, 2)));
  }
}

function parameters(description, parent, list) {
  for (const parameter of list || []) {
    const need = parameter.required ? "required" : "optional";
    const line = element("p");
    line.append(element("code", parameter.name));
    line.append(` in ${parameter.in}, ${need}. ${parameter.description || ""}`);
    parent.append(line);
    parent.append(element("pre", JSON.stringify(expand(description, parameter.schema), null, 2)));
  }
}

function operation(description, path, method, it) {
  const box = element("details");
  const line = element("summary");
  line.append(element("span", method, "method"), element("code", path));
  line.append(element("span", ` ${it.summary || ""}`, "quiet"));
  box.append(line);
  if (it.description) box.append(element("p", it.description));
  parameters(description, box, it.parameters);
  content(description, box, "Body", it.requestBody);
  for (const [status, answer] of Object.entries(it.responses || {})) {
    box.append(element("p", `${status}: ${answer.description}`));
    content(description, box, "Answer", answer);
  }
  box.dataset.text = `${method} ${path} ${it.summary || ""} ${it.description || ""}`.toLowerCase();
  return box;
}

function show(description) {
  document.getElementById("title").textContent = `${description.info.title} ${description.info.version}`;
  document.getElementById("about").textContent = description.info.description || "";
  const operations = document.getElementById("operations");
  operations.replaceChildren();
  for (const [path, item] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((it) => item[it])) {
      operations.append(operation(description, path, method, item[method]));
    }
  }
}

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const box of document.querySelectorAll("details")) box.hidden = !box.dataset.text.includes(wanted);
});

fetch("/api/v1/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("operations").textContent = `The description cannot be loaded: ${error}`;
  });
