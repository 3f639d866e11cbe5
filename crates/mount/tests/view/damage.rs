//! Damage is answered with an error, never with other bytes.

use std::fs;
use std::io::Read;

use rustix::io::Errno;

use crate::support::Place;

/// Flips a bit where `content` is stored.
fn damage(place: &Place, content: &[u8]) {
    for entry in fs::read_dir(place.store.path().join("packs")).unwrap() {
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
    let place = Place::new();
    // Does not compress, so it is stored as it is.
    let noise: Vec<u8> = {
        let mut random = fs::File::open("/dev/urandom").unwrap();
        let mut bytes = vec![0; 60_000];
        random.read_exact(&mut bytes).unwrap();
        bytes
    };
    let snapshot = place.commit(|tree| {
        tree.write("noise", noise.clone()).unwrap();
        tree.write("z", "fine").unwrap();
    });
    damage(&place, &noise);
    let view = place.mount();
    for _ in 0..2 {
        let error = fs::read(view.of(&snapshot).join("noise")).map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    assert_eq!(fs::read_to_string(view.of(&snapshot).join("z")).unwrap(), "fine");
    assert_eq!(fs::metadata(view.of(&snapshot).join("noise")).unwrap().len(), 60_000);
}
