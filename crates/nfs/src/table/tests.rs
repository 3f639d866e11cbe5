//! Tests of tables of file handles: their log, damage to it, full disks, and eviction.

use super::*;

const ROOT_INODE: Inode = Inode { device: 0, number: 2, born: 1 };

/// Opens the table in a directory with a revision. `boot` stands for the boot id of the machine.
fn open_with(directory: &Path, revision: &str, boot: u8) -> Table {
    let budget = Arc::new(TableBudget::new(usize::MAX));
    Table::open(&directory.join("table"), ROOT_INODE, revision, false, [boot; 16], &budget).unwrap()
}

/// Opens a table with a budget for its memory.
fn open_within(path: &Path, budget: &Arc<TableBudget>) -> Table {
    Table::open(path, ROOT_INODE, "", false, [1; 16], budget).unwrap()
}

fn open(directory: &Path) -> Table {
    open_with(directory, "", 1)
}

/// Returns a file with this inode number, which is also its birth time.
fn seen(number: u64) -> Seen {
    let inode = Inode { device: 0, number, born: number };
    Seen { inode, fileid: number, is_linked: false }
}

/// Returns a file with further hard links.
fn linked(number: u64) -> Seen {
    Seen { is_linked: true, ..seen(number) }
}

/// Returns the main location of a file: directory and name.
fn name_of(table: &Table, id: FileId) -> Option<(FileId, String)> {
    let location = table.get(id)?.location.clone()?;
    Some((location.parent, location.name.to_str().unwrap().to_owned()))
}

#[test]
fn files_keep_their_ids_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (dir, _) = table.id_of(ROOT, c"dir", seen(10));
    let (file, fileid) = table.id_of(dir, c"file", seen(11));
    assert_eq!(fileid, 11);
    table.flush().unwrap();
    let generation = table.generation();
    let mut table = open(directory.path());
    assert_eq!(table.generation(), generation);
    assert_eq!(name_of(&table, file), Some((dir, "file".to_owned())));
    assert_eq!(table.id_of(dir, c"file", seen(11)).0, file);
    assert_ne!(table.id_of(dir, c"new", seen(12)).0, file);
}

#[test]
fn another_root_or_revision_starts_an_empty_table() {
    let directory = tempfile::tempdir().unwrap();
    let generation = open(directory.path()).generation();
    let other = open_with(directory.path(), "2", 1);
    assert_ne!(other.generation(), generation);
    assert_eq!(other.len(), 0);
    let root = Inode { born: 7, ..ROOT_INODE };
    let path = directory.path().join("table");
    let budget = Arc::new(TableBudget::new(usize::MAX));
    let third = Table::open(&path, root, "2", false, [1; 16], &budget).unwrap();
    assert_ne!(third.generation(), other.generation());
}

/// Regression test: the header with a long revision was longer than the reader accepts.
#[test]
fn a_long_revision_is_recognised() {
    let directory = tempfile::tempdir().unwrap();
    for length in [1024, 1025, 8 * 1024, 1 << 20] {
        let revision = "r".repeat(length);
        let generation = open_with(directory.path(), &revision, 1).generation();
        assert_eq!(open_with(directory.path(), &revision, 1).generation(), generation, "{length} bytes");
        let other = format!("{}s", &revision[1..]);
        assert_ne!(open_with(directory.path(), &other, 1).generation(), generation, "{length} bytes");
    }
}

#[test]
fn the_verifier_changes_with_the_boot_id_and_on_demand_only() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).verifier();
    assert_eq!(open(directory.path()).verifier(), first);
    let mut table = open_with(directory.path(), "", 2);
    let second = table.verifier();
    assert_ne!(second, first);
    table.change_verifier();
    let third = table.verifier();
    assert_ne!(third, second);
    table.flush().unwrap();
    assert_eq!(open_with(directory.path(), "", 2).verifier(), third);
}

#[test]
fn renames_and_removals_by_clients_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (dir, _) = table.id_of(ROOT, c"dir", seen(10));
    let (file, _) = table.id_of(ROOT, c"file", seen(11));
    table.moved(&seen(11).inode, (ROOT, c"file"), (dir, c"moved"));
    table.flush().unwrap();
    let mut table = open(directory.path());
    assert_eq!(name_of(&table, file), Some((dir, "moved".to_owned())));
    table.unlinked(&seen(11).inode, dir, c"moved", true);
    table.flush().unwrap();
    assert!(open(directory.path()).get(file).is_none());
}

#[test]
fn a_file_with_several_links_is_found_at_the_remaining_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (file, _) = table.id_of(ROOT, c"one", linked(10));
    assert_eq!(table.id_of(ROOT, c"two", linked(10)).0, file);
    table.unlinked(&seen(10).inode, ROOT, c"one", false);
    table.flush().unwrap();
    let mut table = open(directory.path());
    assert_eq!(name_of(&table, file), Some((ROOT, "two".to_owned())));
    table.unlinked(&seen(10).inode, ROOT, c"two", false);
    assert!(table.get(file).is_some_and(|entry| entry.location.is_none()), "the file may have a third link");
}

#[test]
fn a_file_with_a_reused_inode_number_gets_another_id() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (old, _) = table.id_of(ROOT, c"file", seen(10));
    let reused = Seen { inode: Inode { born: 99, ..seen(10).inode }, ..seen(10) };
    let (new, _) = table.id_of(ROOT, c"file", reused);
    assert_ne!(new, old);
    assert!(table.get(old).is_none());
}

#[test]
fn a_file_of_an_overlay_keeps_its_id_when_it_is_copied_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let root = Inode { born: 50, ..ROOT_INODE };
    let budget = Arc::new(TableBudget::new(usize::MAX));
    let mut table = Table::open(&path, root, "", true, [1; 16], &budget).unwrap();
    let (file, _) = table.id_of(ROOT, c"file", seen(10));
    let born = |born| Seen { inode: Inode { born, ..seen(10).inode }, ..seen(10) };
    assert_eq!(table.id_of(ROOT, c"file", born(99)).0, file, "it was copied to the upper layer");
    assert_ne!(table.id_of(ROOT, c"file", born(100)).0, file, "it is another file of the upper layer");
}

#[test]
fn records_before_damage_stay_valid() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let ids: Vec<FileId> = (0..20).map(|number| table.id_of(ROOT, c"file", seen(number + 10)).0).collect();
    table.flush().unwrap();
    drop(table);
    let path = directory.path().join("table");
    let whole = std::fs::read(&path).unwrap();
    let mut known = 0;
    for cut in (0..=whole.len()).rev().step_by(5).collect::<Vec<_>>().into_iter().rev() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let table = open(directory.path());
        let found = ids.iter().filter(|id| table.get(**id).is_some()).count();
        assert!(found >= known || found == 0, "cut at {cut}");
        known = found;
    }
    assert_eq!(known, 20);
    for at in (0..whole.len()).step_by(7) {
        let mut mangled = whole.clone();
        mangled[at] ^= 1;
        std::fs::write(&path, &mangled).unwrap();
        open(directory.path());
    }
}

#[test]
fn a_long_log_is_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (file, _) = table.id_of(ROOT, c"a", seen(10));
    for _ in 0..5000 {
        table.moved(&seen(10).inode, (ROOT, c"a"), (ROOT, c"b"));
        table.moved(&seen(10).inode, (ROOT, c"b"), (ROOT, c"a"));
        table.flush().unwrap();
        table.maintain(Instant::now()).unwrap();
    }
    let length = std::fs::metadata(directory.path().join("table")).unwrap().len();
    assert!(length < 400_000, "the log has {length} bytes");
    assert_eq!(name_of(&open(directory.path()), file), Some((ROOT, "a".to_owned())));
}

#[test]
fn a_failed_rewrite_of_the_log_is_tried_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (file, _) = table.id_of(ROOT, c"a", seen(10));
    while !table.log.is_wasteful(1) {
        table.moved(&seen(10).inode, (ROOT, c"a"), (ROOT, c"a"));
        table.flush().unwrap();
    }
    // The new log cannot be created in place of a directory.
    let obstacle = directory.path().join("table.new");
    std::fs::create_dir(&obstacle).unwrap();
    let now = Instant::now();
    table.maintain(now).unwrap_err();
    std::fs::remove_dir(&obstacle).unwrap();
    let length = || std::fs::metadata(directory.path().join("table")).unwrap().len();
    let before = length();
    assert!(!table.maintain(now + Duration::from_secs(1)).unwrap(), "it is not tried at once");
    assert!(table.maintain(now + RETRY_BACKOFF).unwrap());
    assert!(length() < before);
    assert!(open(directory.path()).get(file).is_some());
}

#[test]
fn a_full_disk_loses_only_records_that_were_not_stored_and_takes_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (stored, _) = table.id_of(ROOT, c"stored", seen(10));
    table.flush().unwrap();
    table.log.disk_is_full = true;
    let (lost, _) = table.id_of(ROOT, c"lost", seen(11));
    table.flush().unwrap_err();
    table.log.disk_is_full = false;
    table.id_of(ROOT, c"after the gap", seen(12));
    assert!(!table.log.has_pending(), "records are not collected");
    table.flush().unwrap();
    assert!(table.get(lost).is_some(), "it is valid as long as this process runs");
    let again = open(directory.path());
    assert!(again.get(stored).is_some() && again.len() == 1);
    assert!(table.maintain(Instant::now()).unwrap());
    assert!(!table.maintain(Instant::now()).unwrap(), "the log was already rewritten");
    let (after, _) = table.id_of(ROOT, c"after", seen(13));
    table.flush().unwrap();
    let again = open(directory.path());
    assert!(again.get(stored).is_some() && again.get(lost).is_some() && again.get(after).is_some());
}

#[test]
fn a_full_disk_after_a_restart_of_the_machine_makes_no_handles_stale() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let verifier = table.verifier();
    table.log.disk_is_full = true;
    table.set_boot([2; 16]);
    table.flush().unwrap_err();
    assert_ne!(table.verifier(), verifier);
    let again = open_with(directory.path(), "", 2);
    assert_eq!(again.generation(), table.generation());
    assert_ne!(again.verifier(), verifier);
}

#[test]
fn a_verifier_that_cannot_be_stored_makes_handles_stale_instead() {
    let directory = tempfile::tempdir().unwrap();
    for is_given_up_before in [false, true] {
        let mut table = open(directory.path());
        let (verifier, generation) = (table.verifier(), table.generation());
        table.log.disk_is_full = true;
        if is_given_up_before {
            table.id_of(ROOT, c"file", seen(10));
            table.flush().unwrap_err();
        }
        table.change_verifier();
        assert_eq!(table.flush().is_ok(), is_given_up_before);
        let again = open(directory.path());
        assert_ne!(again.verifier(), verifier);
        assert_ne!(again.generation(), generation);
    }
}

/// Adds a file to the root. Its name is its inode number.
fn add(table: &mut Table, number: u64) -> FileId {
    table.id_of(ROOT, &name(number), seen(number)).0
}

/// Adds a file for each number.
fn fill(table: &mut Table, numbers: std::ops::Range<u64>) {
    for number in numbers {
        add(table, number);
    }
}

fn name(number: u64) -> std::ffi::CString {
    std::ffi::CString::new(format!("{number:08}")).unwrap()
}

/// Returns the memory of a file that [`add`] adds, in bytes.
fn cost() -> usize {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    add(&mut table, 10);
    table.memory.used()
}

#[test]
fn files_without_recent_use_are_evicted_but_no_directory_above_a_kept_file() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(100 * cost(), 0));
    let mut table = open_within(&directory.path().join("table"), &budget);
    let (top, _) = table.id_of(ROOT, c"top", seen(10));
    let (dir, _) = table.id_of(top, c"dir", seen(11));
    let (below, _) = table.id_of(dir, c"below", seen(12));
    let idle = add(&mut table, 13);
    let ids: Vec<FileId> = (20..1000)
        .map(|number| {
            // Only the file is used, not the directories above it.
            table.get(below).unwrap();
            add(&mut table, number)
        })
        .collect();
    assert!(table.len() <= 100 && table.len() > 80, "{} files", table.len());
    assert!(table.get(idle).is_none() && table.get(ids[0]).is_none());
    assert!([top, dir, below].iter().all(|id| table.get(*id).is_some()));
    assert!(ids[ids.len() - 20..].iter().all(|id| table.get(*id).is_some()));
    let evicted = table.take_evicted();
    assert!(evicted.contains(&idle) && evicted.len() + table.len() == 984);
    assert_eq!(table.children.values().sum::<u32>(), u32::try_from(table.len()).unwrap());
    table.flush().unwrap();
    let again = open(directory.path());
    assert_eq!(again.len(), table.len(), "evictions are stored");
}

#[test]
fn a_chain_of_directories_and_a_cycle_are_evicted() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(200 * cost(), 0));
    let mut table = open_within(&directory.path().join("table"), &budget);
    let mut parent = ROOT;
    for number in 10..100_000 {
        parent = table.id_of(parent, c"dir", seen(number)).0;
        // Two directories, each below the other.
        if number == 20 {
            table.moved(&seen(19).inode, (ROOT, c"dir"), (parent, c"dir"));
            parent = ROOT;
        }
    }
    assert!(table.len() <= 210, "{} files", table.len());
    assert!(table.get(parent).is_some());
}

#[test]
fn a_table_takes_no_memory_from_the_share_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(1000 * cost(), 100 * cost()));
    let mut greedy = open_within(&directory.path().join("greedy"), &budget);
    fill(&mut greedy, 10..3000);
    assert!(
        (900..=1001).contains(&greedy.len()),
        "a single table may use all memory: {} files",
        greedy.len()
    );
    let mut modest = open_within(&directory.path().join("modest"), &budget);
    let ids: Vec<FileId> = (10..400).map(|number| add(&mut modest, number)).collect();
    assert!(ids.iter().all(|id| modest.get(*id).is_some()));
    greedy.maintain(Instant::now()).unwrap();
    modest.maintain(Instant::now()).unwrap();
    assert_eq!(modest.len(), ids.len());
    assert!((500..=610).contains(&greedy.len()), "it has the remaining memory: {} files", greedy.len());
    fill(&mut modest, 10..3000);
    assert!(modest.len() <= 501 && greedy.len() >= 500, "a share is half of the memory");
    drop(greedy);
    fill(&mut modest, 3000..6000);
    assert!(modest.len() > 900, "a dropped table releases its memory: {} files", modest.len());
}

#[test]
fn the_names_of_a_file_are_limited_and_count_as_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    for number in 0..20 {
        table.id_of(ROOT, &name(number), linked(10));
    }
    for number in 100..200 {
        let unknown = name(number);
        table.moved(&seen(10).inode, (ROOT, &unknown), (ROOT, &unknown));
    }
    let id = table.find(&seen(10).inode).unwrap();
    assert_eq!(table.get(id).unwrap().others.len(), OTHER_LOCATIONS_MAX);
    let used = table.memory.used();
    assert!(used > cost() + OTHER_LOCATIONS_MAX * 64, "{used}");
    table.forget(id);
    assert_eq!((table.memory.used(), table.children.len()), (0, 0));
}

#[test]
fn a_stored_table_is_opened_within_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut table = open(directory.path());
    let (dir, _) = table.id_of(ROOT, c"dir", seen(10));
    fill(&mut table, 20..500);
    // When the table is opened again, the directory is evicted before this file is read.
    let (below, _) = table.id_of(dir, c"below", seen(11));
    table.flush().unwrap();
    drop(table);
    let budget = Arc::new(TableBudget::with_table_min(100 * cost(), 0));
    let table = open_within(&path, &budget);
    assert!((50..=101).contains(&table.len()), "{} files", table.len());
    assert!(table.get(dir).is_none() && table.get(below).is_none());
    assert!(table.find(&seen(499).inode).is_some());
}

#[test]
fn the_order_of_eviction_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(100 * cost(), 0));
    let path = directory.path().join("table");
    let mut table = open_within(&path, &budget);
    let ids: Vec<FileId> = (10..100).map(|number| add(&mut table, number)).collect();
    table.compact().unwrap();
    drop(table);
    let mut table = open_within(&path, &budget);
    fill(&mut table, 100..125);
    assert!(table.get(ids[0]).is_none());
    assert!(table.get(ids[89]).is_some());
}

/// Tables are read after a restart or an update of the server, so their format must not change.
#[test]
fn the_format_of_records_is_frozen() {
    let mut out = Vec::new();
    Header { generation: 7, root: ROOT_INODE, revision: "r".to_owned(), boot_id: [0; 16] }.encode(&mut out);
    let location = Location { parent: ROOT, name: c"name".into() };
    let inode = seen(10).inode;
    let id = FileId(9);
    Record::File { id, inode, fileid: 10, location: Some(location.clone()) }.encode(&mut out);
    Record::OtherLocation { id, location }.encode(&mut out);
    Record::Forgotten { id }.encode(&mut out);
    Record::Verifier { boot_id: [3; 16], verifier: 5 }.encode(&mut out);
    let hash = blake3::hash(&out);
    assert_eq!(hash.to_hex().as_str(), "6ff258f943ad1357efb00cf84db8e4d4086b3ae42e9450119c28b59cdcc025f4");
}
