// Lets a language model work in a sandbox with tools. The model here is scripted; put a call of yours in its place.

import { WorkspaceClient, callTool, openaiTools } from "@elevo/workspace-sdk";

interface ToolCall {
    name: string;
    /** JSON, as models send it. */
    arguments: string;
}

interface Message {
    role: "user" | "assistant" | "tool";
    content: string;
    toolCalls?: ToolCall[];
}

/** Returns the next message of the assistant. One without calls of tools is the last. */
type Model = (messages: Message[], tools: ReturnType<typeof openaiTools>) => Promise<Message>;

/** Model that follows a script, and reads the results of its tools. */
function scriptedModel(): Model {
    const use = (name: string, args: object): Message => {
        return { role: "assistant", content: "", toolCalls: [{ name, arguments: JSON.stringify(args) }] };
    };
    const script: ((result: string) => Message)[] = [
        () =>
            use("write_file", {
                path: "fib.py",
                content:
                    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 3)\n\nprint(fib(10))\n",
            }),
        () => use("run", { command: "python3 fib.py" }),
        () => use("edit_file", { path: "fib.py", old: "n - 3", new: "n - 2" }),
        () => use("run", { command: "python3 fib.py" }),
        (result) => ({ role: "assistant", content: `fib(10) is ${/stdout:\n(\d+)/.exec(result)?.[1]}.` }),
    ];
    return (messages) => {
        const next = script.shift();
        if (!next) throw new Error("the script has ended");
        return Promise.resolve(next(messages.at(-1)?.content ?? ""));
    };
}

const model = scriptedModel();
const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });
const messages: Message[] = [
    { role: "user", content: "Write a program that prints the 10th Fibonacci number." },
];

for (;;) {
    const reply = await model(messages, openaiTools());
    messages.push(reply);
    if (!reply.toolCalls) break;
    for (const call of reply.toolCalls) {
        const content = await callTool(sandbox, call.name, call.arguments);
        console.log(`${call.name}: ${content.replaceAll("\n", " ")}`);
        messages.push({ role: "tool", content });
    }
}
console.log(messages.at(-1)?.content);
