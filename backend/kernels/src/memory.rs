//! What becomes of freed memory.

/// Bytes of free memory at the end of the heap above which it is given back to the system, and of the largest pieces that
/// come from the heap: with glibc's own, which are smaller, a program that makes and frees tensors of many megabytes gets
/// fresh pages from the system for each, and touching those takes as long as computing what they hold.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: i32 = 512 << 20;

/// Keeps freed memory for the tensors to come, unless the environment has other wishes (`MALLOC_TRIM_THRESHOLD_`,
/// `MALLOC_MMAP_THRESHOLD_` or `GLIBC_TUNABLES`). Does nothing where malloc is not glibc's.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let wishes = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"];
        if wishes.iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        // SAFETY: both change numbers of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        }
    }
}
