//! A slow registry with one image, on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Number of pieces of the layer, with a pause before each.
const PIECES: usize = 20;
const PIECE_DELAY: Duration = Duration::from_millis(150);

struct Image {
    manifest: Vec<u8>,
    config: Vec<u8>,
    layer: Vec<u8>,
}

/// Serves an image made of a directory until the process ends, and returns its name.
pub(crate) fn serve(root: &Path) -> String {
    let archive = Command::new("tar").arg("-C").arg(root).args(["-c", "."]).output().unwrap();
    assert!(archive.status.success());
    let layer = archive.stdout;
    let config = serde_json::json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = config.to_string().into_bytes();
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": config.len(),
            "digest": digest(&config),
        },
        "layers": [{
            "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "size": layer.len(),
            "digest": digest(&layer),
        }],
    });
    let image = Arc::new(Image { manifest: manifest.to_string().into_bytes(), config, layer });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let image = image.clone();
            std::thread::spawn(move || answer(connection, &image));
        }
    });
    format!("{address}/slow:1")
}

fn digest(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let printed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    format!("sha256:{}", &printed[..64])
}

/// Answers one request and closes the connection.
fn answer(mut connection: TcpStream, image: &Image) {
    let lines = BufReader::new(connection.try_clone().unwrap()).lines();
    let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(request) = head.first() else { return };
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (kind, body) = if path.contains("/manifests/") {
        (MANIFEST, &image.manifest)
    } else if path.ends_with(&digest(&image.config)) {
        ("application/octet-stream", &image.config)
    } else if path.ends_with(&digest(&image.layer)) {
        ("application/octet-stream", &image.layer)
    } else {
        ("application/json", &Vec::new())
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
         Docker-Distribution-Api-Version: registry/2.0\r\nConnection: close\r\n\r\n",
        body.len(),
        digest(body),
    );
    if connection.write_all(head.as_bytes()).is_err() || method == "HEAD" {
        return;
    }
    for piece in body.chunks((body.len() / PIECES).max(4_096)) {
        if body.len() > 1 << 20 {
            std::thread::sleep(PIECE_DELAY);
        }
        if connection.write_all(piece).is_err() {
            return;
        }
    }
}
