//! Configuration of glibc's allocator for freed memory.

/// Configures the allocator to keep freed memory for later tensors, in one heap for all threads. Call this first in `main`.
/// Returns true if the allocator was configured.
///
/// With glibc's defaults, large tensors are mapped from the system and unmapped when they are freed (in threads other than
/// the first, from 64 MiB on). A program that continually allocates and frees tensors then spends as long on page faults as
/// on the data.
///
/// Calls `mallopt`, which is not thread-safe, so nothing is changed if the process already has other threads. Nothing is
/// changed either if the environment configures malloc (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`,
/// `MALLOC_TRIM_THRESHOLD_` or `GLIBC_TUNABLES`), if glibc rejects the thresholds, or if the allocator is not glibc's.
pub fn keep_freed_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let wishes = ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"];
        if wishes.iter().any(|name| std::env::var_os(name).is_some()) || !is_single_threaded() {
            return false;
        }
        // Up to 2.34, glibc rejects thresholds above half of a thread's first heap. Setting any of the parameters disables
        // the dynamic threshold, so the others are not set if this one cannot be set.
        let mapped = [1 << 30, 4 << 20 << size_of::<usize>().ilog2()];
        // SAFETY: `is_single_threaded` has returned true above, and nothing in between starts a thread.
        unsafe {
            mapped.iter().any(|&size| set(libc::M_MMAP_THRESHOLD, size))
                && set(libc::M_TRIM_THRESHOLD, libc::c_int::MAX)
                && set(libc::M_ARENA_MAX, 1)
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Sets a parameter. Returns true if glibc accepts it.
///
/// # Safety
/// The process must have a single thread: `mallopt` changes the allocator's parameters without synchronisation.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe fn set(parameter: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: the caller guarantees that no other thread uses the allocator.
    unsafe { libc::mallopt(parameter, value) == 1 }
}

/// Returns true if the process has a single thread; false if that cannot be determined.
pub fn is_single_threaded() -> bool {
    cfg!(target_os = "linux") && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
