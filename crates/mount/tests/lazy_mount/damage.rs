//! Damaged content gives an error, never other bytes.

use std::fs;
use std::io::Read;

use rustix::io::Errno;

use crate::support::Fixture;

/// Flips a bit in the stored `content`.
fn damage(fixture: &Fixture, content: &[u8]) {
    for entry in fs::read_dir(fixture.store.path().join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let found = bytes.windows(32).position(|window| window == &content[1000..1032]);
        if let Some(at) = found {
            bytes[at] ^= 1;
            return fs::write(&path, bytes).unwrap();
        }
    }
    panic!("content not found in any pack");
}

#[test]
fn damaged_content_is_an_error_and_the_rest_stays_readable() {
    let fixture = Fixture::new();
    // Incompressible, so it is stored uncompressed.
    let noise: Vec<u8> = {
        let mut random = fs::File::open("/dev/urandom").unwrap();
        let mut bytes = vec![0; 60_000];
        random.read_exact(&mut bytes).unwrap();
        bytes
    };
    let snapshot = fixture.commit(|tree| {
        tree.write("noise", noise.clone()).unwrap();
        tree.write("z", "fine").unwrap();
    });
    damage(&fixture, &noise);
    let mount = fixture.mount();
    for _ in 0..2 {
        let error = fs::read(mount.of(&snapshot).join("noise")).map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    assert_eq!(fs::read_to_string(mount.of(&snapshot).join("z")).unwrap(), "fine");
    assert_eq!(fs::metadata(mount.of(&snapshot).join("noise")).unwrap().len(), 60_000);
}
