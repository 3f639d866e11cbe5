//! Status of the host: its load, and the version of its kernel.

use std::io;

/// Load of the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Load average of the last minute: processes that run or wait for a processor.
    pub load_average: f64,
    /// Total memory, in bytes.
    pub memory: f64,
    /// Memory that is available to programs, in bytes.
    pub available: f64,
}

/// Reads the load.
#[cfg(target_os = "linux")]
pub fn load() -> io::Result<Load> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load_average = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let bytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or_default() * 1024.0
    };
    Ok(Load { load_average, memory: bytes("MemTotal:"), available: bytes("MemAvailable:") })
}

/// Reads the load. The file cache counts as available memory.
#[cfg(not(target_os = "linux"))]
pub fn load() -> io::Result<Load> {
    let mut load_average = [0.0];
    // SAFETY: the call writes at most one number, and there is room for one.
    if unsafe { libc::getloadavg(load_average.as_mut_ptr(), 1) } != 1 {
        return Err(io::Error::last_os_error());
    }
    let page = rustix::param::page_size() as f64;
    let pages = |name| sysctl::<u32>(name).map(|count| f64::from(count) * page);
    let available = pages(c"vm.page_free_count")? + pages(c"vm.page_pageable_external_count")?;
    Ok(Load { load_average: load_average[0], memory: sysctl::<u64>(c"hw.memsize")? as f64, available })
}

/// Reads a kernel parameter. `T` must have its size.
#[cfg(not(target_os = "linux"))]
fn sysctl<T: Copy + Default>(name: &std::ffi::CStr) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>();
    // SAFETY: the name ends with NUL, and the call writes at most `len` bytes, which is the size of the
    // value.
    let status = unsafe {
        libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    match status {
        0 if len == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns major and minor version of the kernel.
pub(crate) fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_memory_is_available() {
        let load = load().unwrap();
        assert!(load.load_average >= 0.0);
        assert!(load.available > 0.0 && load.available < load.memory, "{load:?}");
    }
}
