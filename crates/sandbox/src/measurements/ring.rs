//! File with the last measurements of a sandbox.
//!
//! The file has [`MEASUREMENTS_KEPT`] records, in slots. A measurement is written to the slot of its time, over the one
//! of [`MEASUREMENTS_KEPT`] intervals before, so the file needs no other state, and the next server continues it.
//! Writes are not synced, and a crash may leave a part of a record. A reader skips records with a wrong checksum, of
//! another slot, or older than [`MEASUREMENTS_KEPT`] intervals.
//!
//! A record has eight numbers of 64 bits, little-endian: time in milliseconds since 1970, CPU time in
//! microseconds, memory, disk, received and sent bytes, processes, and the first eight bytes of the BLAKE3
//! hash of [`CHECKSUM_PREFIX`] and the numbers before. A value that was not measured is [`NOT_MEASURED`].
//! Another layout gets another prefix.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::runtime::NetworkBytes;

/// Number of measurements that are kept of a sandbox: those of an hour, at the default interval of five seconds.
pub const MEASUREMENTS_KEPT: usize = 720;

const NUMBER_SIZE: usize = 8;
const RECORD_SIZE: usize = 8 * NUMBER_SIZE;
/// Bytes of a record before its checksum.
const CHECKED_SIZE: usize = RECORD_SIZE - NUMBER_SIZE;
const FILE_SIZE: usize = MEASUREMENTS_KEPT * RECORD_SIZE;
const CHECKSUM_PREFIX: &[u8] = b"workspace measurement 1\n";
const NOT_MEASURED: u64 = u64::MAX;

/// Resource usage of a sandbox at one time. A value is `None` if it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measurement {
    /// Time in milliseconds since 1970.
    pub time: i64,
    /// CPU time since the start of the sandbox.
    pub cpu: Option<Duration>,
    /// Bytes of memory in use, without inactive file cache.
    pub memory: Option<u64>,
    /// Bytes of the workspace and of retained output, at the last scan.
    pub disk: Option<u64>,
    /// Traffic since the start of the sandbox.
    pub network: Option<NetworkBytes>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
}

impl Measurement {
    fn encode(&self) -> [u8; RECORD_SIZE] {
        let number = |value: Option<u64>| value.unwrap_or(NOT_MEASURED);
        let cpu = self.cpu.map(|cpu| u64::try_from(cpu.as_micros()).unwrap_or(NOT_MEASURED));
        let numbers = [
            u64::try_from(self.time).unwrap_or(0),
            number(cpu),
            number(self.memory),
            number(self.disk),
            number(self.network.map(|network| network.received)),
            number(self.network.map(|network| network.sent)),
            number(self.processes),
        ];
        let mut record = [0; RECORD_SIZE];
        for (bytes, number) in record.chunks_exact_mut(NUMBER_SIZE).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = checksum(&record[..CHECKED_SIZE]);
        record[CHECKED_SIZE..].copy_from_slice(&checksum);
        record
    }

    /// Returns `None` for a record that is empty or damaged.
    fn decode(record: &[u8]) -> Option<Self> {
        let (checked, stored) = record.split_at_checked(CHECKED_SIZE)?;
        if stored != checksum(checked) {
            return None;
        }
        let mut numbers = checked.chunks_exact(NUMBER_SIZE).map(|bytes| {
            let number = bytes.try_into().map_or(NOT_MEASURED, u64::from_le_bytes);
            Some(number).filter(|number| *number != NOT_MEASURED)
        });
        let mut next = || numbers.next().flatten();
        let time = i64::try_from(next()?).ok()?;
        let (cpu, memory, disk) = (next().map(Duration::from_micros), next(), next());
        let network = next().zip(next()).map(|(received, sent)| NetworkBytes { received, sent });
        Some(Self { time, cpu, memory, disk, network, processes: next() })
    }
}

fn checksum(numbers: &[u8]) -> [u8; NUMBER_SIZE] {
    let mut hasher = blake3::Hasher::new();
    let hash = hasher.update(CHECKSUM_PREFIX).update(numbers).finalize();
    let mut checksum = [0; NUMBER_SIZE];
    checksum.copy_from_slice(&hash.as_bytes()[..NUMBER_SIZE]);
    checksum
}

/// Writes a measurement to a file of measurements that are `interval` apart. Fails if the file does not exist:
/// one that is created here could keep the directory of a deleted sandbox from being removed.
pub(super) fn write(path: &Path, measurement: &Measurement, interval: Duration) -> io::Result<()> {
    let slot = slot(measurement.time, interval) as u64;
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&measurement.encode(), slot * RECORD_SIZE as u64)
}

/// Reads the measurements of the last [`MEASUREMENTS_KEPT`] intervals before `now`, in milliseconds since 1970, oldest
/// first. A missing file has none.
pub(super) fn read(path: &Path, interval: Duration, now: i64) -> io::Result<Vec<Measurement>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_SIZE as u64).read_to_end(&mut bytes)?;
    let period = milliseconds(interval).saturating_mul(MEASUREMENTS_KEPT as i64);
    let is_recent = |time: i64| time <= now && time > now.saturating_sub(period);
    let records = bytes.chunks_exact(RECORD_SIZE).enumerate();
    let decoded = records.filter_map(|(index, record)| {
        let found = Measurement::decode(record)?;
        (slot(found.time, interval) == index && is_recent(found.time)).then_some(found)
    });
    let mut measurements: Vec<Measurement> = decoded.collect();
    measurements.sort_unstable_by_key(|measurement| measurement.time);
    Ok(measurements)
}

/// Returns the slot for measurements of a time, in milliseconds since 1970.
fn slot(time: i64, interval: Duration) -> usize {
    let ticks = time.max(0) / milliseconds(interval);
    usize::try_from(ticks % MEASUREMENTS_KEPT as i64).unwrap_or(0)
}

fn milliseconds(interval: Duration) -> i64 {
    i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);
    /// A time at the start of slot 0.
    const START: i64 = 3_600_000 * 500_000;

    fn full(time: i64) -> Measurement {
        Measurement {
            time,
            cpu: Some(Duration::from_micros(1_500_000)),
            memory: Some(4_096),
            disk: Some(0),
            network: Some(NetworkBytes { received: 7, sent: 8 }),
            processes: Some(3),
        }
    }

    /// Makes a file with these measurements.
    fn ring(measurements: &[Measurement]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        measurements.iter().for_each(|one| write(file.path(), one, INTERVAL).unwrap());
        file
    }

    fn times(file: &tempfile::NamedTempFile, now: i64) -> Vec<i64> {
        read(file.path(), INTERVAL, now).unwrap().iter().map(|one| one.time).collect()
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let partly = Measurement { cpu: None, network: None, ..full(START + 5_000) };
        let file =
            ring(&[full(START), partly, Measurement { time: START + 10_000, ..Measurement::default() }]);
        let found = read(file.path(), INTERVAL, START + 10_000).unwrap();
        assert_eq!(
            found,
            [full(START), partly, Measurement { time: START + 10_000, ..Measurement::default() }]
        );
    }

    #[test]
    fn the_format_never_changes() {
        let hex: String = full(1_700_000_000_000).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0068e5cf8b01000060e3160000000000001000000000000000000000000000000700000000000000\
             0800000000000000030000000000000077d163f1480f916e"
        );
    }

    #[test]
    fn only_the_last_measurements_are_kept_in_bounded_space() {
        let count = MEASUREMENTS_KEPT as i64 + 100;
        let all: Vec<_> = (0..count).map(|index| full(START + index * 5_000)).collect();
        let file = ring(&all);
        assert_eq!(file.as_file().metadata().unwrap().len(), FILE_SIZE as u64);
        let now = START + (count - 1) * 5_000;
        assert_eq!(times(&file, now), all[100..].iter().map(|one| one.time).collect::<Vec<_>>());
        assert_eq!(times(&file, now + 3_600_000), [0; 0], "all are older than an hour");
        assert_eq!(times(&file, START - 1), [0; 0], "the clock was set back");
    }

    #[test]
    fn damaged_records_are_skipped() {
        let all = [START, START + 5_000, START + 10_000].map(full);
        let now = START + 10_000;
        let file = ring(&all);
        assert_eq!(times(&file, now).len(), 3);
        let mut bytes = std::fs::read(file.path()).unwrap();
        // Every byte of a record counts.
        for index in RECORD_SIZE..2 * RECORD_SIZE {
            bytes[index] ^= 1;
            std::fs::write(file.path(), &bytes).unwrap();
            assert_eq!(times(&file, now), [START, START + 10_000], "{index}");
            bytes[index] ^= 1;
        }
        // A record that was copied to another slot is no measurement of that slot.
        bytes.copy_within(..RECORD_SIZE, RECORD_SIZE);
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(times(&file, now), [START, START + 10_000]);
        for length in [0, 1, RECORD_SIZE - 1, RECORD_SIZE, RECORD_SIZE + 1] {
            std::fs::write(file.path(), &bytes[..length]).unwrap();
            assert_eq!(times(&file, now).len(), length / RECORD_SIZE, "{length}");
        }
        std::fs::write(file.path(), vec![b'x'; 10 * FILE_SIZE]).unwrap();
        assert_eq!(times(&file, now), [0; 0]);
        // The next measurements are written over the damage.
        write(file.path(), &full(START), INTERVAL).unwrap();
        assert_eq!(times(&file, now), [START]);
    }

    #[test]
    fn bytes_after_the_last_slot_are_not_read() {
        let mut file = ring(&[full(START)]);
        file.as_file_mut().seek(SeekFrom::Start(FILE_SIZE as u64)).unwrap();
        file.write_all(&full(START + 5_000).encode()).unwrap();
        assert_eq!(times(&file, START + 5_000), [START]);
    }

    #[test]
    fn a_missing_file_has_no_measurements_and_is_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("measurements");
        assert_eq!(read(&path, INTERVAL, START).unwrap(), []);
        let error = write(&path, &full(START), INTERVAL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
    }
}
