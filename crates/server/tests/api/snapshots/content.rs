//! Content of snapshots: trees, files, differences.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;

use super::SnapshotServer;
use super::archive::Archive;
use super::uploads::noise;

fn names(listing: &serde_json::Value) -> Vec<&str> {
    listing["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn an_uploaded_snapshot_can_be_listed_read_compared_and_deleted() {
    let fixture = SnapshotServer::new();
    let first =
        Archive::new().file("src/main.rs", "fn main() {}\n").file("old", "1\n2\n3\n").symlink("link", "src");
    let answer = fixture.upload("?message=the%20first&label=kind=a&label=run=7", &first.bytes());
    assert_eq!(answer.status, 201, "{}", answer.body);
    let first = answer.json();
    assert_eq!(
        (&first["files"], &first["directories"], &first["symlinks"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!((&first["message"], &first["labels"]["run"]), (&"the first".into(), &"7".into()));
    assert_eq!((first["skipped"].as_array().unwrap().len(), &first["bytes"]), (0, &19.into()));
    let second = Archive::new()
        .program("src/main.rs", "fn main() {}\n")
        .file("new", "1\n2\n3\n")
        .file("Cargo.toml", "x");
    let second = fixture.create_snapshot(&second);
    let first = first["id"].as_str().unwrap();

    let list = fixture.get_json("snapshots");
    let ids: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &list["total"]), (vec![second.as_str(), first], &2.into()));
    for (query, total) in [
        ("?label=kind=a", 1),
        ("?label=kind=a&label=run=8", 0),
        ("?label=kind=b", 0),
        ("?reference=main", 0),
        ("?page=2&limit=1", 2),
    ] {
        assert_eq!(fixture.get_json(&format!("snapshots{query}"))["total"], total, "{query}");
    }
    assert_eq!(fixture.get_json(&format!("snapshots/{first}"))["tree"].as_str().unwrap().len(), 64);

    let root = fixture.get_json(&format!("snapshots/{first}/tree"));
    assert_eq!((names(&root), &root["entry"]["kind"]), (vec!["link", "old", "src"], &"directory".into()));
    assert_eq!((&root["items"][0]["target"], &root["items"][1]["mode"]), (&"src".into(), &"0644".into()));
    assert_eq!(fixture.get_json(&format!("snapshots/{first}/tree/"))["items"], root["items"]);
    assert_eq!(names(&fixture.get_json(&format!("snapshots/{first}/tree/src/"))), ["main.rs"]);
    let file = fixture.get_json(&format!("snapshots/{first}/tree/src/main.rs"));
    assert_eq!((&file["entry"]["size"], file.get("items")), (&13.into(), None));
    assert_eq!(fixture.get(&format!("snapshots/{first}/files/src/main.rs")).body, "fn main() {}\n");

    let plain = fixture.get_json(&format!("snapshots/{first}/diff/{second}"));
    let changes: Vec<_> = plain["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {}", it["change"], it["path"]))
        .collect();
    assert_eq!(
        changes,
        [
            r#""added" "Cargo.toml""#,
            r#""removed" "link""#,
            r#""renamed" "new""#,
            r#""mode_changed" "src/main.rs""#
        ]
    );
    assert_eq!((&plain["entries"][2]["renamed_from"], &plain["truncated"]), (&"old".into(), &false.into()));
    let cut = fixture.get_json(&format!("snapshots/{first}/diff/{second}?limit=3&insight=true"));
    assert_eq!(
        (cut["entries"].as_array().unwrap().len(), &cut["total"], &cut["truncated"]),
        (3, &4.into(), &true.into())
    );
    assert_eq!(cut["totals"]["notes"]["became_executable"], 1, "of what is left out, too: {cut}");
    assert_eq!(cut["entries"][0]["notes"][0]["code"], "dependency_manifest");
    let patch = fixture.get(&format!("snapshots/{first}/diff/{second}?patch=true&limit=1"));
    assert_eq!(
        (patch.header("content-type"), patch.header("x-truncated")),
        (Some("text/x-diff"), Some("true"))
    );
    assert!(patch.body.contains("+++ b/Cargo.toml"), "{}", patch.body);
    let same = fixture.get_json(&format!("snapshots/{first}/diff/{first}"));
    assert_eq!((&same["total"], &same["from"]), (&0.into(), &same["to"]));
    for query in ["insight=true&patch=true", "limit=0", "limit=10001", "insight=1", "what=1"] {
        let answer = fixture.get(&format!("snapshots/{first}/diff/{second}?{query}"));
        assert_eq!(answer.error(), "INVALID_REQUEST", "{query}");
    }

    assert_eq!(fixture.call("DELETE", &format!("snapshots/{first}")).send().status, 204);
    for path in ["", "/tree", "/tree/src", "/files/old", &format!("/diff/{second}")] {
        assert_eq!(fixture.get(&format!("snapshots/{first}{path}")).error(), "SNAPSHOT_NOT_FOUND", "{path}");
    }
    assert_eq!(fixture.get_json("snapshots")["total"], 1);
}

#[test]
fn ranges_of_files_are_served() {
    let fixture = SnapshotServer::new();
    let content: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let archive = Archive::new().file("big", &content).file("again", &content).file("empty", "");
    let id = fixture.create_snapshot(&archive);
    let big = format!("snapshots/{id}/files/big");
    let whole = fixture.get(&big);
    assert_eq!((whole.status, whole.body == content), (200, true));
    let tag = whole.header("etag").unwrap();
    for (name, value) in [
        ("content-length", content.len().to_string().as_str()),
        ("content-type", "application/octet-stream"),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
    ] {
        assert_eq!(whole.header(name), Some(value), "{name}");
    }
    assert_eq!(fixture.get(&format!("snapshots/{id}/files/again")).header("etag"), Some(tag));
    let size = content.len();
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=500000-1500000", 500_000, 1_500_001),
        ("bytes=-7", size - 7, size),
        ("bytes=100-", 100, size),
    ] {
        let part = fixture.call("GET", &big).header("range", range).send();
        assert_eq!((part.status, part.body == content[from..to]), (206, true), "{range}");
        let expected = format!("bytes {from}-{}/{size}", to - 1);
        assert_eq!(part.header("content-range"), Some(expected.as_str()));
        assert_eq!(part.header("content-length"), Some((to - from).to_string().as_str()));
    }
    for (path, range) in [
        (big.as_str(), format!("bytes={size}-")),
        (&big, "bytes=-0".to_owned()),
        (&format!("snapshots/{id}/files/empty"), "bytes=0-".to_owned()),
    ] {
        let answer = fixture.call("GET", path).header("range", &range).send();
        assert_eq!((answer.status, answer.error().as_str()), (416, "RANGE_NOT_SATISFIABLE"), "{range}");
        assert!(answer.header("content-range").unwrap().starts_with("bytes */"));
    }
    for several in ["bytes=0-1,5-6", "lines=1-2"] {
        assert_eq!(fixture.call("GET", &big).header("range", several).send().status, 200);
    }
    for (name, value, status) in [
        ("if-none-match", tag, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", &format!("\"other\", W/{tag}"), 304),
        ("if-none-match", "\"other\"", 200),
    ] {
        let answer = fixture.call("GET", &big).header(name, value).send();
        assert_eq!((answer.status, answer.body.is_empty()), (status, status == 304), "{value}");
    }
    for (known, status) in [(tag, 206), ("\"other\"", 200)] {
        let call = fixture.call("GET", &big).header("range", "bytes=0-1").header("if-range", known);
        assert_eq!(call.send().status, status, "{known}");
    }
    let head = fixture.call("HEAD", &big).send();
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", Some(tag)));
    assert_eq!(head.header("content-length"), Some(size.to_string().as_str()));
    assert_eq!(fixture.get(&format!("snapshots/{id}/files/empty")).body, "");
}

#[test]
fn slow_and_disconnected_readers_do_not_block_others() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("big", vec![b'x'; 20 << 20]).file("small", "here"));
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
        let request = format!(
            "GET /api/v1/snapshots/{id}/files/big HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\n\r\n",
            fixture.key
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        slow.push(stream);
    }
    slow.truncate(20);
    assert_eq!(fixture.get(&format!("snapshots/{id}/files/small")).body, "here");
    assert_eq!(fixture.upload("", &Archive::new().file("a", "b").bytes()).status, 201);
}

#[test]
fn reading_a_directory_or_symlink_as_a_file_names_its_kind() {
    let fixture = SnapshotServer::new();
    let archive = Archive::new()
        .file("dir/file", "x")
        .symlink("to-file", "dir/file")
        .symlink("to-dir", "dir")
        .symlink("out", "/etc");
    let id = fixture.create_snapshot(&archive);
    for (path, name, told) in [
        ("dir", "NOT_A_FILE", "is a directory"),
        ("", "NOT_A_FILE", "is a directory"),
        ("to-file", "NOT_A_FILE", "symlink to `dir/file`"),
        ("out", "NOT_A_FILE", "symlink to `/etc`"),
        ("to-dir/file", "PATH_NOT_FOUND", "symlink to `dir`"),
        ("out/passwd", "PATH_NOT_FOUND", "symlink to `/etc`"),
        ("dir/file/more", "PATH_NOT_FOUND", "there is no `dir/file/more`"),
        ("nothing", "PATH_NOT_FOUND", "there is no `nothing`"),
        ("%2e%2e/etc", "INVALID_REQUEST", "not a path"),
        ("a%00b", "INVALID_REQUEST", "not a path"),
        ("a%zz", "INVALID_REQUEST", "two hexadecimal digits"),
    ] {
        let answer = fixture.get(&format!("snapshots/{id}/files/{path}"));
        assert_eq!(answer.error(), name, "{path}");
        assert!(answer.body.contains(told), "{path}: {}", answer.body);
    }
    let link = fixture.get(&format!("snapshots/{id}/files/to-file")).json();
    assert_eq!(link["error"]["details"]["target"], "dir/file");
    assert_eq!(fixture.get_json(&format!("snapshots/{id}/tree/to-file"))["entry"]["target"], "dir/file");
    assert_eq!(fixture.get(&format!("snapshots/{id}/tree/to-dir/file")).error(), "PATH_NOT_FOUND");
}

#[test]
fn names_may_contain_any_bytes() {
    let fixture = SnapshotServer::new();
    let archive = Archive::new()
        .file(b"d/\xff\xfe", "no text")
        .file("d/per cent%20", "per cent")
        .file("d/ü+?#", "signs")
        .file("d/a\"b\n", "quoted");
    let id = fixture.create_snapshot(&archive);
    for (path, content) in [
        ("d/%FF%fe", "no text"),
        ("d/per%20cent%2520", "per cent"),
        ("d/%C3%BC+%3F%23", "signs"),
        ("d%2F%c3%bc%2B%3f%23", "signs"),
        ("d//./a%22b%0A", "quoted"),
    ] {
        let answer = fixture.get(&format!("snapshots/{id}/files/{path}"));
        assert_eq!((answer.status, answer.body.as_str()), (200, content), "{path}");
    }
    let tree = fixture.get_json(&format!("snapshots/{id}/tree/d"));
    assert_eq!(names(&tree), [r#""a\"b\n""#, "per cent%20", "ü+?#", r#""\377\376""#]);
    let entry = fixture.get_json(&format!("snapshots/{id}/tree/d/%FF%FE"));
    assert_eq!(entry["entry"]["size"], 7);
    assert_eq!(fixture.get(&format!("snapshots/{id}/files/d/%FF")).error(), "PATH_NOT_FOUND");
}

#[test]
fn a_huge_directory_is_paged() {
    let fixture = SnapshotServer::new();
    let count = 5_000;
    let archive = (0..count).fold(Archive::new(), |archive, n| archive.file(format!("many/{n:05}"), ""));
    let id = fixture.create_snapshot(&archive);
    let mut seen = Vec::new();
    for page in 1.. {
        let listing = fixture.get_json(&format!("snapshots/{id}/tree/many?limit=999&page={page}"));
        assert_eq!((&listing["total"], &listing["entry"]["size"]), (&count.into(), &count.into()));
        let names = names(&listing);
        if names.is_empty() {
            break;
        }
        seen.extend(names.into_iter().map(str::to_owned));
    }
    assert!(seen.is_sorted() && seen.len() == count, "{}", seen.len());
    assert_eq!(names(&fixture.get_json(&format!("snapshots/{id}/tree/many"))).len(), 100);
    for query in ["page=0", "limit=0", "limit=1001", "page=-1", "page=x", "after=5"] {
        assert_eq!(
            fixture.get(&format!("snapshots/{id}/tree/many?{query}")).error(),
            "INVALID_REQUEST",
            "{query}"
        );
    }
}

#[test]
fn unknown_snapshots_and_paths_are_not_found() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("a", "b"));
    let other = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718";
    for unknown in [other, "main", &id[..12], "..", "%FF", "0"] {
        for end in ["", "/tree", "/tree/a", "/files/a"] {
            if unknown == "%FF" && end.is_empty() {
                continue;
            }
            let answer = fixture.get(&format!("snapshots/{unknown}{end}"));
            assert_eq!(answer.error(), "SNAPSHOT_NOT_FOUND", "{unknown}{end}");
        }
        if unknown != "%FF" {
            for pair in [format!("{unknown}/diff/{id}"), format!("{id}/diff/{unknown}")] {
                assert_eq!(fixture.get(&format!("snapshots/{pair}")).error(), "SNAPSHOT_NOT_FOUND", "{pair}");
            }
            let gone = fixture.call("DELETE", &format!("snapshots/{unknown}")).send();
            assert_eq!(gone.error(), "SNAPSHOT_NOT_FOUND", "{unknown}");
        }
    }
    for query in ["page=0", "limit=101", "label=a", "labels=a=b", "limit=x"] {
        assert_eq!(fixture.get(&format!("snapshots?{query}")).error(), "INVALID_REQUEST", "{query}");
    }
}

#[test]
fn damaged_content_is_never_returned() {
    let fixture = SnapshotServer::new();
    let id = fixture.create_snapshot(&Archive::new().file("big", noise(5, 4 << 20)));
    let packs = std::fs::read_dir(fixture.server.path().join("store/packs")).unwrap();
    for pack in packs.map(|pack| pack.unwrap().path()) {
        let file = File::options().write(true).open(pack).unwrap();
        let length = file.metadata().unwrap().len();
        if length > 1 << 20 {
            file.write_all_at(&vec![b'?'; 2 << 20], 1 << 20).unwrap();
        }
    }
    let big = format!("snapshots/{id}/files/big");
    // The order of chunks in the pack depends on the timing of threads.
    let parts = (0..4 << 20).step_by(100_000).map(|at| {
        let part = fixture.call("GET", &big).header("range", &format!("bytes={at}-{}", at + 100)).send();
        assert!(!part.body.contains("??????"));
        part.status == 206 || part.error() != "SNAPSHOT_DAMAGED"
    });
    let intact = parts.filter(|is_intact| *is_intact).count();
    assert!((1..42).contains(&intact), "{intact}");
    let whole = fixture.get(&big);
    let all = String::from_utf8_lossy(&noise(5, 4 << 20)).len();
    assert!(whole.status != 200 || whole.body.len() < all);
    assert!(!whole.body.contains("??????"));
}
