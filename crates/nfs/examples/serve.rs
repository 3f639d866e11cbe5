//! Serves a directory over NFS until standard input is closed: `serve DIRECTORY STATE_DIRECTORY PORT`. Prints the
//! command that mounts the directory. The server keeps its key and its file handles in `STATE_DIRECTORY`.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Read;
    use std::sync::Arc;

    use workspace_nfs::{Export, Identity, NfsServer, NoObserver, Settings};

    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, state, port] = arguments.as_slice() else {
        return Err("usage: serve DIRECTORY STATE_DIRECTORY PORT".into());
    };
    let mut settings = Settings::new(state);
    settings.ports = vec![port.parse()?];
    let server = NfsServer::new(settings, Arc::new(NoObserver))?;
    server.start()?;
    let root = std::fs::File::open(directory)?.into();
    let info = server.add_export(Export::new("export", root, Identity::own()))?;
    println!("{}", info.mount_command);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(server.stop()?)
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("NFS is served on Linux alone");
}
