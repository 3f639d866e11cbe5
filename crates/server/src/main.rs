//! The program `workspace-server`.

fn main() -> std::process::ExitCode {
    workspace_server::main()
}
