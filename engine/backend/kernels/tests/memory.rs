//! Tests of freed memory. Each case runs in its own process with a single thread, so there is no test harness.

use std::process::Command;

use grove_kernels::keep_freed_memory;

/// Environment variable that selects a case.
const CASE: &str = "GROVE_MEMORY_CASE";

fn main() {
    // Test lists, as cargo and similar tools request them.
    if std::env::args().any(|argument| argument == "--list") {
        return println!("memory: test");
    }
    match std::env::var(CASE).as_deref() {
        Ok("alone") => kept(),
        Ok("threads") => std::thread::scope(|scope| {
            scope.spawn(|| println!("kept: {}", keep_freed_memory()));
        }),
        Ok(_) => println!("kept: {}", keep_freed_memory()),
        Err(_) => cases(),
    }
}

fn cases() {
    let says = |case: &str, variable: Option<&str>| {
        let mut process = Command::new(std::env::current_exe().unwrap());
        for name in ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"] {
            process.env_remove(name);
        }
        process.env(CASE, case).envs(variable.map(|name| (name, "1")));
        let output = process.output().unwrap();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
    assert_eq!(says("alone", None), format!("kept: {glibc}\n"));
    assert_eq!(says("threads", None), "kept: false\n");
    for name in ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"] {
        assert_eq!(says("wishes", Some(name)), "kept: false\n", "{name}");
    }
    println!("memory: all cases hold");
}

/// Keeps freed memory, and checks this in glibc's statistics.
fn kept() {
    println!("kept: {}", keep_freed_memory());
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // More than the threshold of a new process, less than the smallest one that is set.
        let tensor = std::hint::black_box(vec![1u8; 24 << 20]);
        // SAFETY: `mallinfo` takes no arguments, only reads the allocator's statistics, and returns them by value.
        let held = unsafe { libc::mallinfo() };
        assert!(held.hblks == 0 && held.uordblks >= 24 << 20, "in a mapping of its own: {held:?}");
        drop(std::hint::black_box(tensor));
        // SAFETY: as for the first call.
        let freed = unsafe { libc::mallinfo() };
        assert!(freed.fordblks >= 24 << 20, "given back to the system: {freed:?}");
    }
}
