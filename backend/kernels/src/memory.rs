//! What becomes of freed memory.

/// Keeps freed memory for the tensors to come, in one heap for all threads. A program calls it as the first thing in `main`.
/// Returns whether that is so from now on.
///
/// With glibc's defaults, large tensors come fresh from the system and go back to it when they are freed, and for threads
/// other than the first that begins at 64 MiB: a program that makes and frees tensors all the time then spends as long on the
/// pages as on what they hold.
///
/// It changes glibc's parameters by `mallopt`, which is not thread-safe, so nothing is changed in a process that has other
/// threads already. Nothing is changed either where the environment has other wishes (`MALLOC_ARENA_MAX`,
/// `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_` or `GLIBC_TUNABLES`), where glibc refuses the thresholds, and where
/// malloc is not glibc's.
pub fn keep_freed_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let wishes = ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"];
        if wishes.iter().any(|name| std::env::var_os(name).is_some()) || !is_single_threaded() {
            return false;
        }
        // Until 2.34, glibc refuses thresholds above half of a thread's first heap. To set any of the parameters turns the
        // threshold's own growth off: so the others are left alone where it cannot be set.
        [1 << 30, 4 << 20 << size_of::<usize>().ilog2()].iter().any(|&size| set(libc::M_MMAP_THRESHOLD, size))
            && set(libc::M_TRIM_THRESHOLD, libc::c_int::MAX)
            && set(libc::M_ARENA_MAX, 1)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Whether glibc takes a parameter.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(parameter: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: `mallopt` writes the allocator's parameters without regard to other threads; its only caller has seen that this
    // thread is the only one, and nothing between there and here starts another.
    unsafe { libc::mallopt(parameter, value) == 1 }
}

/// Whether the process has no other thread; false where that cannot be found out.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
