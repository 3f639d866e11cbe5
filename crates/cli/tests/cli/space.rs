//! gc, verify.

use std::fs;

use crate::support::{Ran, TestDir};

#[test]
fn unused_objects_are_collected() {
    let place = TestDir::with_project();
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

fn size_of(place: &TestDir) -> u64 {
    let packs = fs::read_dir(place.path("store/packs")).unwrap();
    packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn rules_say_what_stays() {
    let place = TestDir::with_project();
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
    let place = TestDir::with_project();
    place.ok(&["snapshot", "project", "--ref", "main"]);
    insta::assert_snapshot!(place.transcript(&[&["verify"], &["verify", "--repair"]]));
}

/// A place with a snapshot of `project`, whose `src/data` is damaged in the store.
fn damaged() -> (TestDir, String) {
    let place = TestDir::with_project();
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
    assert!(cat.stderr.contains("`workspace verify` lists every damaged path"), "{}", cat.stderr);
}

#[test]
fn a_repair_says_what_it_did_and_what_it_could_not() {
    let (place, id) = damaged();
    let ran = place.run(&["verify", "--repair"]);
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.starts_with("rebuilt the index from the packs: "), "{}", ran.stdout);
    assert!(ran.stdout.contains(" objects, 1 snapshot, 0 references, 0 episodes\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("damaged  snapshot {id}  src/data: ")), "{}", ran.stdout);
    assert!(ran.stderr.contains("warning: 1 damaged path could not be repaired"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("--repair"), "it was done: {}", ran.stderr);
    // As the hint says.
    place.ok(&["snapshot", "project"]);
    assert_eq!(place.record(&["verify"])["damage"], serde_json::json!([]));
}

/// Flips a bit in the middle of what the largest pack holds, where the content of a file is.
fn damage(place: &TestDir) {
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
    let place = TestDir::with_project();
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
fn truncate_log(place: &TestDir) {
    let packs = fs::read_dir(place.path("store/packs")).unwrap().map(|entry| entry.unwrap().path());
    let log = fs::File::options().write(true).open(packs.min().unwrap()).unwrap();
    log.set_len(log.metadata().unwrap().len() / 2).unwrap();
}

#[test]
fn a_repair_lists_what_was_lost_and_gives_status_3() {
    let place = TestDir::with_project();
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
    let place = TestDir::with_project();
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

/// Runs a script in this place where it may mount: as root here, otherwise in namespaces of its own. `$W` is the
/// command.
fn run_mounting(place: &TestDir, script: &str) -> Ran {
    let mut command = place.program("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let command = command.args(["sh", "-eu", "-c", script]).env("W", env!("CARGO_BIN_EXE_workspace"));
    Ran::of(&command.env("WORKSPACE_STORE", "disk/store").output().unwrap())
}

#[test]
fn on_a_full_disk_commands_that_read_work_and_rm_and_gc_make_room() {
    let place = TestDir::with_project();
    let noise = |seed: u32, words: u32| -> Vec<u8> {
        (0..words)
            .flat_map(|at| (at ^ seed).wrapping_mul(2_654_435_761).rotate_left(at % 31).to_le_bytes())
            .collect()
    };
    place.write("big/file", noise(1, 2_000_000));
    place.write("other/file", noise(77_777, 1_000_000));
    let ran = run_mounting(
        &place,
        "mkdir disk && mount -t tmpfs -o size=24m tmpfs disk
        $W snapshot project --ref main >/dev/null
        big=$($W snapshot big)
        if dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null; then echo 'the disk is not full'; exit 9; fi
        $W log | wc -l
        $W show main >/dev/null && $W ls main && $W cat main README.md && $W refs >/dev/null
        $W diff main $big >/dev/null
        $W verify >/dev/null
        if $W snapshot other 2>refused; then echo 'there was room'; exit 9; fi
        grep -q 'No space left' refused
        $W rm $big && $W gc >/dev/null && $W gc >/dev/null
        $W snapshot other >/dev/null
        $W verify >/dev/null && $W log | wc -l",
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let lines: Vec<&str> = ran.stdout.lines().map(str::trim).collect();
    assert_eq!((lines[0], lines[lines.len() - 1]), ("2", "2"), "{}", ran.stdout);
    assert!(ran.stdout.contains("# A project"), "{}", ran.stdout);
}

#[test]
fn a_store_on_a_read_only_file_system_can_be_read() {
    let place = TestDir::with_project();
    let ran = run_mounting(
        &place,
        "mkdir disk && mount -t tmpfs -o size=24m tmpfs disk
        $W snapshot project --ref main >/dev/null
        mount -o remount,ro disk
        $W log | wc -l
        $W show main >/dev/null && $W ls main >/dev/null && $W refs >/dev/null && $W verify >/dev/null
        $W cat main README.md
        if $W snapshot project 2>refused; then echo 'it was written'; exit 9; fi
        cat refused >&2",
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.starts_with('1') && ran.stdout.contains("# A project"), "{}", ran.stdout);
    assert!(ran.stderr.contains("hint: the store is on a read-only filesystem"), "{}", ran.stderr);
}
