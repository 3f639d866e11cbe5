use super::*;

const ROOT_INODE: Inode = Inode { device: 0, number: 2, born: 1 };

fn open_with(directory: &Path, revision: &str, boot: u8) -> Table {
    let budget = Arc::new(TableBudget::new(usize::MAX));
    Table::open(&directory.join("table"), ROOT_INODE, revision, false, [boot; 16], &budget).unwrap()
}

/// Opens a table with a budget.
fn open_within(path: &Path, budget: &Arc<TableBudget>) -> Table {
    Table::open(path, ROOT_INODE, "", false, [1; 16], budget).unwrap()
}

fn open(directory: &Path) -> Table {
    open_with(directory, "", 1)
}

fn seen(number: u64) -> Seen {
    let inode = Inode { device: 0, number, born: number };
    Seen { inode, fileid: number, is_linked: false }
}

fn linked(number: u64) -> Seen {
    Seen { is_linked: true, ..seen(number) }
}

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
fn another_root_or_revision_begins_anew() {
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

/// A header was written that was too long to be read.
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
fn the_verifier_changes_with_the_boot_alone() {
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
fn renames_and_removals_are_followed() {
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
fn a_file_with_more_links_is_found_at_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (file, _) = table.id_of(ROOT, c"one", linked(10));
    assert_eq!(table.id_of(ROOT, c"two", linked(10)).0, file);
    table.unlinked(&seen(10).inode, ROOT, c"one", false);
    table.flush().unwrap();
    let mut table = open(directory.path());
    assert_eq!(name_of(&table, file), Some((ROOT, "two".to_owned())));
    table.unlinked(&seen(10).inode, ROOT, c"two", false);
    assert!(table.get(file).is_some_and(|entry| entry.location.is_none()), "there may be a third");
}

#[test]
fn a_reused_inode_is_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (old, _) = table.id_of(ROOT, c"file", seen(10));
    let reused = Seen { inode: Inode { born: 99, ..seen(10).inode }, ..seen(10) };
    let (new, _) = table.id_of(ROOT, c"file", reused);
    assert_ne!(new, old);
    assert!(table.get(old).is_none());
}

#[test]
fn a_file_of_an_overlay_may_be_born_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let root = Inode { born: 50, ..ROOT_INODE };
    let budget = Arc::new(TableBudget::new(usize::MAX));
    let mut table = Table::open(&path, root, "", true, [1; 16], &budget).unwrap();
    let (file, _) = table.id_of(ROOT, c"file", seen(10));
    let born = |born| Seen { inode: Inode { born, ..seen(10).inode }, ..seen(10) };
    assert_eq!(table.id_of(ROOT, c"file", born(99)).0, file, "it was copied to the upper layer");
    assert_ne!(table.id_of(ROOT, c"file", born(100)).0, file, "it is another of the upper layer");
}

#[test]
fn damage_costs_only_what_follows() {
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
fn a_long_log_is_written_anew() {
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
fn a_log_that_cannot_be_written_anew_is_tried_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    let (file, _) = table.id_of(ROOT, c"a", seen(10));
    while !table.log.is_wasteful(1) {
        table.moved(&seen(10).inode, (ROOT, c"a"), (ROOT, c"a"));
        table.flush().unwrap();
    }
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
fn a_full_disk_costs_only_what_was_not_stored_and_takes_no_memory() {
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
    assert!(!table.maintain(Instant::now()).unwrap(), "it is done");
    let (after, _) = table.id_of(ROOT, c"after", seen(13));
    table.flush().unwrap();
    let again = open(directory.path());
    assert!(again.get(stored).is_some() && again.get(lost).is_some() && again.get(after).is_some());
}

#[test]
fn a_full_disk_after_a_start_of_the_machine_makes_no_handles_stale() {
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

/// Adds a file to the root, whose inode number is also its name.
fn add(table: &mut Table, number: u64) -> FileId {
    table.id_of(ROOT, &name(number), seen(number)).0
}

fn fill(table: &mut Table, numbers: std::ops::Range<u64>) {
    for number in numbers {
        add(table, number);
    }
}

fn name(number: u64) -> std::ffi::CString {
    std::ffi::CString::new(format!("{number:08}")).unwrap()
}

/// Memory of a file that [`add`] adds.
fn cost() -> usize {
    let directory = tempfile::tempdir().unwrap();
    let mut table = open(directory.path());
    add(&mut table, 10);
    table.memory.used()
}

#[test]
fn the_files_that_were_not_used_for_the_longest_time_are_evicted_and_no_directory_above_others() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(100 * cost(), 0));
    let mut table = open_within(&directory.path().join("table"), &budget);
    let (top, _) = table.id_of(ROOT, c"top", seen(10));
    let (dir, _) = table.id_of(top, c"dir", seen(11));
    let (below, _) = table.id_of(dir, c"below", seen(12));
    let idle = add(&mut table, 13);
    let ids: Vec<FileId> = (20..1000)
        .map(|number| {
            // The handles of the directories themselves are not used.
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
fn a_table_takes_no_memory_from_the_share_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(TableBudget::with_table_min(1000 * cost(), 100 * cost()));
    let mut greedy = open_within(&directory.path().join("greedy"), &budget);
    fill(&mut greedy, 10..3000);
    assert!((900..=1001).contains(&greedy.len()), "alone it may have all: {} files", greedy.len());
    let mut modest = open_within(&directory.path().join("modest"), &budget);
    let ids: Vec<FileId> = (10..400).map(|number| add(&mut modest, number)).collect();
    assert!(ids.iter().all(|id| modest.get(*id).is_some()));
    greedy.maintain(Instant::now()).unwrap();
    modest.maintain(Instant::now()).unwrap();
    assert_eq!(modest.len(), ids.len());
    assert!((500..=610).contains(&greedy.len()), "it has what is left: {} files", greedy.len());
    fill(&mut modest, 10..3000);
    assert!(modest.len() <= 501 && greedy.len() >= 500, "a share is half of it");
    drop(greedy);
    fill(&mut modest, 3000..6000);
    assert!(modest.len() > 900, "removed tables give back theirs: {} files", modest.len());
}

#[test]
fn many_names_of_a_file_are_counted() {
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
    // The directory is evicted before this is read.
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

/// Tables outlive the server that wrote them, so their form is a stored format.
#[test]
fn the_form_of_records_is_frozen() {
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
