"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const applyColorScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
applyColorScheme();
dark.addEventListener("change", applyColorScheme);

SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  filter: true,
  // Schemas are shown with the requests that use them.
  defaultModelsExpandDepth: 0,
  // The key stays in memory: `true` would put it into localStorage.
  persistAuthorization: false,
  // Without this, the description would be sent to validator.swagger.io.
  validatorUrl: null,
});
