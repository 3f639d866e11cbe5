use std::os::fd::OwnedFd;

use tempfile::TempDir;

use super::*;

fn directory() -> (TempDir, OwnedFd) {
    let temp_dir = tempfile::tempdir().unwrap();
    let fd = OwnedFd::from(File::open(temp_dir.path()).unwrap());
    (temp_dir, fd)
}

fn all(reader: &mut Reader) -> Vec<Item> {
    std::iter::from_fn(|| reader.next_item().unwrap()).collect()
}

/// Returns the bytes, and the gaps between them.
fn bytes_and_gaps(items: &[Item]) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Item::Frame(frame) if frame.stream == Stream::Exit => {}
            Item::Frame(frame) => bytes.extend_from_slice(&frame.data),
            Item::Gap { from, to } => gaps.push((*from, *to)),
        }
    }
    (bytes, gaps)
}

#[test]
fn frames_are_read_from_any_offset() {
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "cmd-1", 0).unwrap();
    writer.write(Stream::Stdout, 5, b"hello ").unwrap();
    writer.write(Stream::Stderr, 6, b"world").unwrap();
    writer.write_exit(7, ExitStatus { exit_code: 3, timed_out: true }).unwrap();
    assert_eq!(writer.end_offset(), 11);
    let items = all(&mut Reader::open(&fd, "cmd-1", 0).unwrap());
    let frame = |stream, time, offset, data: &[u8]| Frame { stream, time, offset, data: data.to_vec() };
    assert_eq!(items[0], Item::Frame(frame(Stream::Stdout, 5, 0, b"hello ")));
    assert_eq!(items[1], Item::Frame(frame(Stream::Stderr, 6, 6, b"world")));
    let Item::Frame(exit) = &items[2] else { panic!("the exit status is a frame") };
    assert_eq!(exit.exit_status(), Some(ExitStatus { exit_code: 3, timed_out: true }));
    for offset in 0..=11 {
        let items = all(&mut Reader::open(&fd, "cmd-1", offset).unwrap());
        assert_eq!(bytes_and_gaps(&items), (b"hello world"[offset as usize..].to_vec(), vec![]));
    }
}

#[test]
fn kept_range_is_that_of_the_remaining_segments() {
    let (temp_dir, fd) = directory();
    let range = || kept_range(&fd, "cmd-1").unwrap();
    assert_eq!(range(), None);
    let mut writer = Writer::create(fd.try_clone().unwrap(), "cmd-1", 16 << 10).unwrap();
    assert_eq!(range(), Some(0..0));
    writer.write(Stream::Stdout, 5, b"hello").unwrap();
    writer.write_exit(7, ExitStatus { exit_code: 3, timed_out: true }).unwrap();
    assert_eq!(range(), Some(0..5), "the exit status is no output");
    Writer::create(fd.try_clone().unwrap(), "cmd-10", 0).unwrap().write(Stream::Stdout, 5, b"other").unwrap();
    for _ in 0..100 {
        writer.write(Stream::Stderr, 6, &[b'x'; 1_000]).unwrap();
    }
    let kept = range().unwrap();
    assert_eq!(kept.end, writer.end_offset());
    assert!((16 << 10..=32 << 10).contains(&(kept.end - kept.start)), "{kept:?}");
    let first = all_segments(&fd).unwrap().remove(0);
    assert_eq!(first.offset, kept.start);
    // An incomplete frame at the end does not count, nor does anything after damage.
    let last = all_segments(&fd).unwrap().into_iter().rfind(|segment| segment.command == "cmd-1").unwrap();
    let path = temp_dir.path().join(segment_name("cmd-1", last.offset));
    let len = std::fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
    assert_eq!(range().unwrap().end, kept.end - 1_000);
    std::fs::write(&path, [0xff; 100]).unwrap();
    assert_eq!(range(), Some(kept.start..last.offset));
    assert!(kept_range(&fd, "../cmd-1").is_err());
}

#[test]
fn following_reader_sees_everything_once() {
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "c", 64 << 10).unwrap();
    let mut reader = Reader::open(&fd, "c", 0).unwrap();
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for step in 0..400u32 {
        let data = vec![step as u8; (step as usize * 37) % 1500];
        writer.write(Stream::Stdout, 0, &data).unwrap();
        written.extend_from_slice(&data);
        let (bytes, gaps) = bytes_and_gaps(&all(&mut reader));
        assert_eq!(gaps, []);
        read.extend(bytes);
    }
    assert!(read == written);
    assert_eq!(reader.offset(), writer.end_offset());
}

#[test]
fn oldest_bytes_are_dropped_and_reported_as_gap() {
    let (temp_dir, fd) = directory();
    let keep = 64 << 10;
    let mut writer = Writer::create(fd.try_clone().unwrap(), "c", keep).unwrap();
    let mut early = Reader::open(&fd, "c", 0).unwrap();
    let first = early.next_item().unwrap();
    assert_eq!(first, None, "nothing was written yet");
    let data: Vec<u8> = (0..1_000_000u32).map(|number| (number / 7) as u8).collect();
    for part in data.chunks(3000) {
        writer.write(Stream::Stdout, 0, part).unwrap();
    }
    let on_disk: u64 =
        temp_dir.path().read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk < 2 * keep, "{on_disk} bytes are kept");
    for offset in [0, 500_000] {
        let (bytes, gaps) = bytes_and_gaps(&all(&mut Reader::open(&fd, "c", offset).unwrap()));
        let [(from, to)] = gaps[..] else { panic!("one gap: {gaps:?}") };
        assert_eq!(from, offset);
        assert!(1_000_000 - to >= keep, "at least `keep` bytes are kept");
        assert!(bytes == data[to as usize..]);
    }
}

#[test]
fn incomplete_frame_is_not_returned() {
    let (temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "c", 0).unwrap();
    writer.write(Stream::Stdout, 0, b"first").unwrap();
    writer.write(Stream::Stdout, 0, b"second").unwrap();
    let path = temp_dir.path().join("c.0000000000000000");
    let whole = std::fs::read(&path).unwrap();
    for cut in HEADER_LEN + 5..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut reader = Reader::open(&fd, "c", 0).unwrap();
        assert_eq!(bytes_and_gaps(&all(&mut reader)).0, b"first");
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(bytes_and_gaps(&all(&mut reader)).0, b"second");
    }
}

#[test]
fn damaged_files_and_invalid_ids_are_errors() {
    let (temp_dir, fd) = directory();
    std::fs::write(temp_dir.path().join("c.0000000000000000"), [9; 100]).unwrap();
    assert!(Reader::open(&fd, "c", 0).unwrap().next_item().is_err());
    for bad in ["", "../c", "a/b", "a.b", &"x".repeat(65)] {
        assert!(Reader::open(&fd, bad, 0).is_err());
        assert!(Writer::create(fd.try_clone().unwrap(), bad, 0).is_err());
    }
    assert_eq!(Reader::open(&fd, "unknown", 0).unwrap().next_item().unwrap(), None);
}

#[test]
fn unwritten_output_before_the_exit_is_a_gap() {
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "c", 0).unwrap();
    writer.write(Stream::Stdout, 0, b"kept").unwrap();
    // Simulates a full disk.
    writer.offset += 10;
    writer.write_exit(0, ExitStatus { exit_code: 0, timed_out: false }).unwrap();
    let items = all(&mut Reader::open(&fd, "c", 0).unwrap());
    assert_eq!(bytes_and_gaps(&items), (b"kept".to_vec(), vec![(4, 14)]));
    assert!(matches!(&items[2..], [Item::Frame(exit)] if exit.stream == Stream::Exit), "{items:?}");
    assert_eq!(kept_range(&fd, "c").unwrap(), Some(0..14));
    assert_eq!(bytes_and_gaps(&all(&mut Reader::open(&fd, "c", 14).unwrap())), (Vec::new(), Vec::new()));
}

/// Set in the process that runs with a limit of file sizes.
const LIMITED: &str = "WORKSPACE_TEST_LIMITED_FILE_SIZE";

#[test]
fn partly_written_frame_is_a_gap() {
    if std::env::var_os(LIMITED).is_some() {
        return write_to_the_limit_of_file_sizes();
    }
    // As on a full disk, a write at the limit writes a part. The limit and the ignored signal hold for a process.
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ && ulimit -f 64 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "output::tests::partly_written_frame_is_a_gap", "--nocapture"])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
}

fn write_to_the_limit_of_file_sizes() {
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "c", 0).unwrap();
    let mut reader = Reader::open(&fd, "c", 0).unwrap();
    let mut written = 0;
    while writer.write(Stream::Stdout, 0, &[0xff; 1_000]).is_ok() {
        written += 1_000;
    }
    assert_eq!(bytes_and_gaps(&all(&mut reader)), (vec![0xff; written as usize], vec![]));
    // Shorter than the part that was written of the frame before it.
    writer.write_exit(0, ExitStatus { exit_code: 0, timed_out: false }).unwrap();
    let items = all(&mut reader);
    assert_eq!(bytes_and_gaps(&items), (vec![], vec![(written, written + 1_000)]));
    assert!(matches!(&items[1..], [Item::Frame(exit)] if exit.stream == Stream::Exit), "{items:?}");
    assert_eq!(Writer::resume(fd, "c", 0).unwrap().end_offset(), written + 1_000);
}

#[test]
fn writer_resumes_after_another_was_stopped() {
    let (temp_dir, fd) = directory();
    let keep = 64 << 10;
    let mut expected = Vec::new();
    for round in 0..40u8 {
        let mut writer = Writer::resume(fd.try_clone().unwrap(), "c", keep).unwrap();
        assert_eq!(writer.end_offset(), expected.len() as u64);
        let data = vec![round; 1_000];
        writer.write(Stream::Stdout, 0, &data).unwrap();
        expected.extend_from_slice(&data);
        drop(writer);
        // A killed writer leaves an incomplete frame.
        let last = segments(&fd, "c").unwrap().last().copied().unwrap();
        let mut file =
            File::options().append(true).open(temp_dir.path().join(segment_name("c", last))).unwrap();
        io::Write::write_all(&mut file, &[1, 100, 0, 0, 0, 7]).unwrap();
    }
    let items = all(&mut Reader::open(&fd, "c", 0).unwrap());
    assert_eq!(bytes_and_gaps(&items), (expected.clone(), vec![]));
    let mut writer = Writer::resume(fd.try_clone().unwrap(), "c", keep).unwrap();
    writer.skip_to(expected.len() as u64 + 5);
    writer.write(Stream::Stderr, 0, b"x").unwrap();
    writer.write_exit(0, ExitStatus { exit_code: 1, timed_out: false }).unwrap();
    drop(writer);
    assert_eq!(Writer::resume(fd.try_clone().unwrap(), "c", keep).unwrap().end_offset(), 40_006);
    let items = all(&mut Reader::open(&fd, "c", 40_000).unwrap());
    assert_eq!(bytes_and_gaps(&items), (b"x".to_vec(), vec![(40_000, 40_005)]));
    assert_eq!(Writer::resume(fd, "new", keep).unwrap().end_offset(), 0);
}

#[test]
fn removed_segments_are_a_gap_and_do_not_stop_the_writer() {
    let (temp_dir, fd) = directory();
    let keep = 64 << 10;
    let mut writer = Writer::create(fd.try_clone().unwrap(), "cmd-1", keep).unwrap();
    let data: Vec<u8> = (0..60_000u32).map(|number| (number / 7) as u8).collect();
    writer.write(Stream::Stdout, 0, &data).unwrap();
    writer.write(Stream::Stdout, 0, b"x").unwrap();
    std::fs::write(temp_dir.path().join("no segment"), "").unwrap();
    let found = all_segments(&fd).unwrap();
    assert!(
        found.len() > 1 && found.iter().all(|segment| segment.command == "cmd-1" && segment.bytes > 0),
        "{found:?}"
    );
    for segment in &found[..found.len() - 1] {
        remove_segment(&fd, segment).unwrap();
        remove_segment(&fd, segment).unwrap();
    }
    // Enough that the writer tries to remove the oldest segments, which are already gone.
    for _ in 0..10 {
        writer.write(Stream::Stdout, 0, &data).unwrap();
    }
    let (bytes, gaps) = bytes_and_gaps(&all(&mut Reader::open(&fd, "cmd-1", 0).unwrap()));
    let [(0, to)] = gaps[..] else { panic!("one gap: {gaps:?}") };
    assert_eq!(bytes.len() as u64, writer.end_offset() - to);
}

#[test]
fn segments_stay_small_with_a_large_limit() {
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd.try_clone().unwrap(), "cmd-1", 1 << 30).unwrap();
    for _ in 0..64 {
        writer.write(Stream::Stdout, 0, &[7; 64 << 10]).unwrap();
    }
    let largest = all_segments(&fd).unwrap().into_iter().map(|segment| segment.bytes).max().unwrap();
    assert!(largest < 2 * SEGMENT_OUTPUT_MAX, "{largest}");
}

#[test]
fn forged_frames_are_rejected() {
    let frame = |stream: u8, offset: u64, data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap();
        [&[stream], &length.to_le_bytes()[..], &[0; 8], &offset.to_le_bytes(), data].concat()
    };
    // An offset that overflows, and an exit status without content.
    for bytes in [frame(1, u64::MAX - 1, b"end"), frame(3, 0, b"")] {
        let (temp_dir, fd) = directory();
        std::fs::write(temp_dir.path().join("c.0000000000000000"), bytes).unwrap();
        let read = Reader::open(&fd, "c", 0).unwrap().next_item().map_err(|error| error.kind());
        assert_eq!(read, Err(io::ErrorKind::InvalidData));
        // A writer that continues removes what no reader gets past.
        let mut writer = Writer::resume(fd.try_clone().unwrap(), "c", 0).unwrap();
        assert_eq!(writer.end_offset(), 0);
        writer.write(Stream::Stdout, 0, b"new").unwrap();
        let items = all(&mut Reader::open(&fd, "c", 0).unwrap());
        assert_eq!(bytes_and_gaps(&items), (b"new".to_vec(), vec![]));
    }
    let (_temp_dir, fd) = directory();
    let mut writer = Writer::create(fd, "c", 0).unwrap();
    writer.skip_to(u64::MAX - 1);
    assert!(writer.write(Stream::Stdout, 0, b"end").is_err());
    assert_eq!(writer.end_offset(), u64::MAX - 1);
}

#[test]
fn reader_finds_the_next_segment_with_and_without_the_mode_of_the_newest_segment() {
    for is_marked in [true, false] {
        let (temp_dir, fd) = directory();
        let mode_of_first = || {
            let stat = std::fs::metadata(temp_dir.path().join(segment_name("c", 0))).unwrap();
            Mode::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&stat))
        };
        let mut writer = Writer::create(fd.try_clone().unwrap(), "c", 0).unwrap();
        if !is_marked {
            // Earlier agents did not mark the newest segment by its mode.
            fchmod(&writer.file, MODE).unwrap();
        }
        writer.write(Stream::Stdout, 0, b"a").unwrap();
        let mut reader = Reader::open(&fd, "c", 0).unwrap();
        assert_eq!(bytes_and_gaps(&all(&mut reader)).0, b"a");
        assert_eq!(mode_of_first().contains(MODE_NEWEST), is_marked);
        // Simulates a full disk: the next segment starts far after the end of this one.
        writer.offset += 1 << 20;
        writer.write(Stream::Stdout, 0, b"b").unwrap();
        assert!(!mode_of_first().contains(MODE_NEWEST));
        assert_eq!(bytes_and_gaps(&all(&mut reader)), (b"b".to_vec(), vec![(1, 1 + (1 << 20))]));
        assert!(has_segments(&fd, "c").unwrap());
        remove(&fd, &["c".to_owned()]).unwrap();
        assert!(!has_segments(&fd, "c").unwrap() && all_segments(&fd).unwrap().is_empty());
    }
}

#[test]
fn remove_deletes_only_one_command() {
    let (_temp_dir, fd) = directory();
    for command in ["c", "cc"] {
        let mut writer = Writer::create(fd.try_clone().unwrap(), command, 0).unwrap();
        writer.write(Stream::Stdout, 0, b"a").unwrap();
    }
    assert!(has_segments(&fd, "c").unwrap());
    remove(&fd, &["c".to_owned()]).unwrap();
    assert!(!has_segments(&fd, "c").unwrap() && has_segments(&fd, "cc").unwrap());
}

#[test]
fn a_file_whose_name_spells_an_offset_differently_is_no_segment() {
    let (temp_dir, fd) = directory();
    for offset in ["0", "+0", "00", "000000000000000A", "00000000000000000"] {
        std::fs::write(temp_dir.path().join(format!("cmd-1.{offset}")), [0; 100]).unwrap();
    }
    // `remove_segment` builds the file name from the offset, so it could not remove files with these names.
    assert_eq!(all_segments(&fd).unwrap(), []);
    assert!(!has_segments(&fd, "cmd-1").unwrap());
    Writer::create(fd.try_clone().unwrap(), "cmd-1", 0).unwrap().write(Stream::Stdout, 0, b"output").unwrap();
    let segments = all_segments(&fd).unwrap();
    assert_eq!(segments.len(), 1);
    remove_segment(&fd, &segments[0]).unwrap();
    assert_eq!(all_segments(&fd).unwrap(), []);
}

#[cfg(target_os = "linux")]
#[test]
fn a_fifo_in_the_place_of_a_segment_blocks_no_reader() {
    let (_temp_dir, fd) = directory();
    let name = segment_name("cmd-1", 0);
    rustix::fs::mknodat(&fd, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let read = Reader::open(&fd, "cmd-1", 0).unwrap().next_item();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(kept_range(&fd, "cmd-1").unwrap_err().kind(), io::ErrorKind::InvalidData);
    let resumed = Writer::resume(fd.try_clone().unwrap(), "cmd-1", 0);
    assert_eq!(resumed.unwrap_err().kind(), io::ErrorKind::InvalidData);
    remove(&fd, &["cmd-1".to_owned()]).unwrap();
    assert!(!has_segments(&fd, "cmd-1").unwrap());
}
