use std::collections::BTreeSet;

use super::*;

/// Limits with a size of ten lines of [`line`].
const RETENTION: Retention = Retention { max_bytes: 100, kept: 3 };

fn line(number: u32) -> String {
    format!("{number:09}\n")
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(|line| format!("{line}\n")).collect()
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_full_file_is_rotated_and_the_oldest_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    for number in 0..55 {
        log.add(&line(number)).unwrap();
        if number % 7 == 0 {
            log.flush().unwrap();
        }
    }
    log.flush().unwrap();
    assert_eq!(
        names(directory.path()),
        ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"].map(str::to_owned).into()
    );
    let of = |numbers: std::ops::Range<u32>| numbers.map(line).collect::<Vec<_>>();
    assert_eq!(lines(&path), of(50..55));
    assert_eq!(lines(&with_suffix(&path, "1")), of(40..50));
    assert_eq!(lines(&with_suffix(&path, "3")), of(20..30));
}

#[test]
fn a_reopened_log_is_continued_with_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    for number in 0..12 {
        let mut log = LogFile::open(&path, RETENTION).unwrap();
        log.add(&line(number)).unwrap();
        log.flush().unwrap();
    }
    assert_eq!((lines(&with_suffix(&path, "1")).len(), lines(&path).len()), (10, 2));
}

#[test]
fn a_log_moved_by_another_program_is_recreated_at_the_next_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("audit.log"), directory.path().join("elsewhere"));
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    log.add(&line(0)).unwrap();
    log.flush().unwrap();
    fs::rename(&path, &moved).unwrap();
    for number in 1..12 {
        log.add(&line(number)).unwrap();
    }
    log.flush().unwrap();
    let all = [lines(&moved), lines(&path)].concat();
    assert_eq!(all, (0..12).map(line).collect::<Vec<_>>());
    assert_eq!(lines(&path).len(), 2);
}

#[test]
fn surplus_files_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    for number in 1..=6 {
        fs::write(with_suffix(&path, &number.to_string()), line(number)).unwrap();
    }
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    for number in 0..11 {
        log.add(&line(number)).unwrap();
    }
    log.flush().unwrap();
    assert_eq!(names(directory.path()).len(), 4, "{:?}", names(directory.path()));
    assert_eq!(lines(&with_suffix(&path, "3")), [line(2)]);
}

#[test]
fn a_line_above_the_limit_is_written_completely() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    let long = format!("{}\n", "x".repeat(1_000));
    for _ in 0..2 {
        log.add(&long).unwrap();
    }
    log.flush().unwrap();
    assert_eq!((lines(&path), lines(&with_suffix(&path, "1"))), (vec![long.clone()], vec![long]));
}

/// A directory cannot be replaced by a file, so the rotation fails, also for root.
#[test]
fn after_a_failed_rotation_the_old_file_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    fs::create_dir_all(with_suffix(&path, "1").join("full")).unwrap();
    let mut log = LogFile::open(&path, Retention { kept: 1, ..RETENTION }).unwrap();
    for number in 0..25 {
        log.add(&line(number)).unwrap();
    }
    log.flush().unwrap();
    assert!(log.rotation_failed_at.is_some());
    assert_eq!(lines(&path), (0..25).map(line).collect::<Vec<_>>());
    // Once the obstacle is gone, the file is rotated.
    fs::remove_dir_all(with_suffix(&path, "1")).unwrap();
    log.rotation_failed_at = None;
    log.add(&line(25)).unwrap();
    log.flush().unwrap();
    assert_eq!((lines(&with_suffix(&path, "1")).len(), lines(&path)), (25, vec![line(25)]));
}

#[test]
fn without_a_new_file_the_old_file_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    // Links are not followed, so the file cannot be created, not even by root.
    std::os::unix::fs::symlink("/nowhere/else", with_suffix(&path, "new")).unwrap();
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    for number in 0..25 {
        log.add(&line(number)).unwrap();
    }
    log.flush().unwrap();
    assert!(log.rotation_failed_at.is_some());
    assert_eq!(lines(&path).len(), 25);
    assert!(!with_suffix(&path, "1").exists());
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    log.file = File::options().write(true).open("/dev/full").unwrap();
    for number in 0..3 {
        log.add(&line(number)).unwrap();
    }
    let lost = log.flush().unwrap_err();
    assert_eq!((lost.lines, lost.error.kind()), (3, io::ErrorKind::StorageFull));
    // Later lines are written.
    log.file = private_file::open_append(&path).unwrap();
    log.add(&line(3)).unwrap();
    log.flush().unwrap();
    assert_eq!(lines(&path), [line(3)]);
}

#[test]
fn an_incomplete_line_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut log = LogFile::open(&path, RETENTION).unwrap();
    log.add(&line(0)).unwrap();
    log.flush().unwrap();
    log.file.write_all(b"half a li").unwrap();
    log.torn = true;
    log.add(&line(1)).unwrap();
    log.flush().unwrap();
    assert_eq!(lines(&path), [line(0), line(1)]);
}

#[test]
fn an_incomplete_line_after_a_crash_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    for (before, after) in [
        (line(1) + "0000", line(1) + &line(2)),
        (line(1), line(1) + &line(2)),
        ("no line of ours".to_owned(), "no line of ours".to_owned() + &line(2)),
    ] {
        fs::write(&path, before).unwrap();
        let mut log = LogFile::open(&path, RETENTION).unwrap();
        log.add(&line(2)).unwrap();
        log.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), after);
    }
}

#[test]
fn only_regular_files_are_rotated() {
    let mut log = LogFile::open(Path::new("/dev/null"), RETENTION).unwrap();
    for number in 0..100 {
        log.add(&line(number)).unwrap();
    }
    log.flush().unwrap();
    assert!(log.rotation_failed_at.is_none() && !Path::new("/dev/null.1").exists());
}
