//! A program with one thread. A process has one pool of threads, so this test has a process of its own.

use std::thread;

use grove_kernels::as_worker;
use rayon::prelude::*;

fn threads_of_a_kernel() -> Vec<thread::ThreadId> {
    let mut threads: Vec<_> = (0..100).into_par_iter().map(|_| thread::current().id()).collect();
    threads.dedup();
    threads
}

#[test]
fn kernels_run_on_the_calling_thread() {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("no pool yet");
    let here = thread::current().id();
    for _ in 0..2 {
        as_worker(|| {
            assert_eq!(threads_of_a_kernel(), [here]);
            // A thread whose kernels the program waits for, such as a data loader, has the pool.
            thread::scope(|scope| {
                let threads = scope.spawn(threads_of_a_kernel).join().expect("no panic");
                assert!(threads.len() == 1 && threads[0] != here, "{threads:?}");
            });
        });
    }
}
