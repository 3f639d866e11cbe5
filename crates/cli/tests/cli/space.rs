//! gc, verify.

use std::fs;

use crate::support::Place;

#[test]
fn what_nothing_uses_is_collected() {
    let place = Place::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    place.write("project/big", (0..5_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    let experiment = place.id(&["snapshot", "project"]);
    place.ok(&["rm", &experiment]);
    let dry = place.record(&["gc", "--dry-run"]);
    assert_eq!(dry["dry_run"], true);
    assert!(dry["dead_objects"].as_u64().unwrap() > 0, "{dry}");
    let before = size_of(&place);
    place.ok(&["gc"]);
    // What one collection condemns, a later one deletes.
    place.ok(&["gc"]);
    assert!(size_of(&place) < before, "{} {before}", size_of(&place));
    assert_eq!(place.record(&["verify"])["damage"], serde_json::json!([]));
    place.ok(&["checkout", "main", "copy"]);
}

fn size_of(place: &Place) -> u64 {
    let packs = fs::read_dir(place.path("store/packs")).unwrap();
    packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn rules_say_what_stays() {
    let place = Place::with_project();
    let old = place.snapshot("project");
    let labelled = place.id(&["snapshot", "project", "--label", "keep=yes"]);
    let head = place.id(&["snapshot", "project", "--ref", "main"]);
    let last = place.snapshot("project");
    let rules = ["gc", "--keep-last", "1", "--keep-labelled"];
    insta::assert_snapshot!(place.transcript(&[&[&rules[..], &["--dry-run"]].concat()]).replace(
        // Sizes are those of an index that may change.
        |character: char| character.is_ascii_digit(),
        "N"
    ));
    assert_eq!(place.json(&["log"]).len(), 4);
    let report = place.record(&rules);
    assert_eq!(report["removed_snapshots"], serde_json::json!([old]));
    let left: Vec<_> = place.json(&["log"]).into_iter().map(|it| it["id"].clone()).collect();
    assert_eq!(left, [last, head, labelled].map(serde_json::Value::from));
    // Everything is younger than an hour.
    assert_eq!(place.record(&["gc", "--keep-since", "1h"])["removed_snapshots"], serde_json::json!([]));
    let wrong = place.run(&["gc", "--keep-since", "yesterday"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("expected a date"), "{}", wrong.stderr);
}

#[test]
fn a_sound_store_is_said_to_be_sound() {
    let place = Place::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[&["verify"], &["verify", "--repair"]]));
}

/// A place with a snapshot of `project`, whose `src/data` is damaged in the store.
fn damaged() -> (Place, String) {
    let place = Place::with_project();
    let content: Vec<u8> =
        (0..100_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    place.write("project/src/data", content);
    let id = place.id(&["snapshot", "project"]);
    damage(&place);
    (place, id)
}

#[test]
fn damage_is_named_and_gives_status_3() {
    let (place, id) = damaged();
    let ran = place.run(&["verify"]);
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(&format!("damaged  snapshot {id}  src/data: ")), "{}", ran.stdout);
    assert!(ran.stderr.contains("hint: `workspace verify --repair`"), "{}", ran.stderr);
    let json = place.run(&["--json", "verify"]);
    assert_eq!(json.status, 3);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["damage"][0]["path"], "src/data");
    // Wrong bytes are never given out.
    let cat = place.run(&["cat", &id, "src/data"]);
    assert_eq!(cat.status, 1);
    assert!(cat.stderr.contains("`workspace verify` names every damaged path"), "{}", cat.stderr);
}

#[test]
fn a_repair_says_what_it_did_and_what_it_could_not() {
    let (place, id) = damaged();
    let ran = place.run(&["verify", "--repair"]);
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.starts_with("rebuilt the index from the packs: "), "{}", ran.stdout);
    assert!(ran.stdout.contains(" objects, 1 snapshot, 0 references, 0 episodes\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("damaged  snapshot {id}  src/data: ")), "{}", ran.stdout);
    assert!(ran.stderr.contains("warning: 1 damaged place could not be repaired"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("--repair"), "it was done: {}", ran.stderr);
    // As the hint says.
    place.ok(&["snapshot", "project"]);
    assert_eq!(place.record(&["verify"])["damage"], serde_json::json!([]));
}

/// Flips a bit in the middle of what the largest pack holds, where the content of a file is.
fn damage(place: &Place) {
    let packs = fs::read_dir(place.path("store/packs")).unwrap().map(|entry| entry.unwrap().path());
    let largest = packs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    // A pack that is being written to has room at its end.
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 1;
    fs::write(largest, bytes).unwrap();
}

#[test]
fn a_lost_index_is_rebuilt() {
    let place = Place::with_project();
    let id = place.id(&["snapshot", "project", "--ref", "main"]);
    fs::write(place.path("store/index/data.mdb"), b"").unwrap();
    let report = place.record(&["verify", "--repair"]);
    assert_eq!(report["repaired"], true);
    assert_eq!(report["snapshots"], 1);
    let live = place.record(&["gc", "--dry-run"])["live_objects"].clone();
    let expected = serde_json::json!({"objects": live, "snapshots": 1, "references": 1, "episodes": 0});
    assert_eq!(report["index"], expected);
    assert_eq!(place.record(&["verify"]).get("index"), None);
    assert_eq!(place.record(&["show", "main"])["id"], id.as_str());
}

/// Cuts off the second half of the first log.
fn truncate_log(place: &Place) {
    let packs = fs::read_dir(place.path("store/packs")).unwrap().map(|entry| entry.unwrap().path());
    let log = fs::File::options().write(true).open(packs.min().unwrap()).unwrap();
    log.set_len(log.metadata().unwrap().len() / 2).unwrap();
}

#[test]
fn a_repair_lists_what_was_lost_and_gives_status_3() {
    let place = Place::with_project();
    let mut ids = Vec::new();
    for number in 0..6 {
        place.write("project/number", format!("{number}"));
        ids.push(place.id(&["snapshot", "project", "--ref", "main", "-m", &format!("number {number}")]));
    }
    truncate_log(&place);
    let ran = place.run(&["verify", "--repair"]);
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    let left = place.json(&["log"]).len();
    assert!((1..6).contains(&left), "{left} snapshots are left");
    for id in &ids[left..] {
        assert!(ran.stdout.contains(&format!("lost  snapshot {id}")), "{}", ran.stdout);
    }
    assert!(ran.stdout.contains("number 5"), "the message tells which one it was: {}", ran.stdout);
    let moved = format!("lost  reference main: was {}, is {}", ids[5], ids[left - 1]);
    assert!(ran.stdout.contains(&moved), "{}", ran.stdout);
    let lost = 6 - left;
    assert!(ran.stderr.contains(&format!("warning: lost {lost} snapshots, 1 references")), "{}", ran.stderr);
    assert!(place.path("store/index.old-1/data.mdb").exists());
    assert!(ran.stderr.contains("hint: remove ") && ran.stderr.contains("index.old-1"), "{}", ran.stderr);
    // Said once: the store is sound as it is now.
    assert_eq!(place.run(&["verify"]).status, 0);
}

#[test]
fn a_rebuild_on_open_is_told_on_stderr() {
    let place = Place::with_project();
    let id = place.snapshot("project");
    fs::write(place.path("store/index/data.mdb"), [7; 20_000]).unwrap();
    let ran = place.run(&["log"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with(&id), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("warning: the index of ") && ran.stderr.contains("was rebuilt"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("1 snapshots"), "{}", ran.stderr);
    assert_eq!(place.run(&["log"]).stderr, "");
}
