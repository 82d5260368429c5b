//! What becomes of freed memory.

/// Keeps freed memory for the tensors to come, in one heap for all threads, unless the environment has other wishes
/// (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_` or `GLIBC_TUNABLES`). To be called before there
/// are threads. Does nothing where malloc is not glibc's.
///
/// As glibc is, large tensors come fresh from the system and go back to it when they are freed, and for threads other than
/// the first that begins at 64 MiB: a program that makes and frees tensors all the time then spends as long on the pages as
/// on what they hold.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let wishes = ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"];
        if wishes.iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        // SAFETY: they change numbers of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        }
    }
}
