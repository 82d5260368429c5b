//! A rank of the tests: `grove-mpi-worker TASK`. Prints one line for each result that the tests check.

use grove_communicator::{CommError, Communicator, Wire};
use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

/// A timeout that no get of these tests reaches.
const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let comm = match grove_mpi::world() {
        Ok(comm) => comm,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("process {} {}", comm.rank(), std::process::id());
    match run(&comm, &task).and_then(|()| comm.close()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => comm.end_job(&error),
    }
}

fn run(comm: &Communicator, task: &str) -> Result<(), CommError> {
    match task {
        "collectives" => collectives(comm),
        "pairs" => pairs(comm),
        // No rank puts this key.
        "wait_for_key" => comm.key_value_store().get("local_topology/cuda/7", LONG).map(drop),
        "no_key" => comm.key_value_store().get("an oak", Duration::from_millis(300)).map(drop),
        // Puts large values until the process is ended.
        "pairs_forever" => {
            let store = comm.key_value_store();
            (0..).try_for_each(|i| {
                store.put(&format!("{i} {}", comm.rank()), &vec![7; 300_000])?;
                (0..comm.size()).try_for_each(|rank| store.get(&format!("{i} {rank}"), LONG).map(drop))
            })
        }
        // Runs until the process is ended.
        "forever" => loop {
            let numbers = vec![comm.rank() as f32; 100_000];
            comm.start_all_reduce("numbers", numbers, Wire::Bf16)?.wait()?;
            comm.broadcast("numbers", vec![1u64; 1000])?;
        },
        // One rank fails, and the others wait for it.
        "failure" => {
            if comm.rank() == 1 && comm.fails_first() {
                eprintln!("error: the disk is full");
                comm.abort(1);
            }
            comm.barrier("before the checkpoint")
        }
        // All ranks fail for the same reason.
        "same_failure" => {
            if comm.fails_first() {
                eprintln!("error: no such file");
            } else {
                thread::sleep(Duration::from_secs(5));
            }
            comm.abort(1)
        }
        "early_end" => match comm.rank() {
            1 => Ok(()),
            _ => comm.all_reduce("gradients", vec![1f32]).map(drop),
        },
        "other_lengths" => comm.all_reduce("gradients", vec![1f32; 10 + comm.rank()]).map(drop),
        "differ" => comm.agree("settings", &[("seed".to_owned(), (comm.rank() / 2).to_string())]),
        other => Err(CommError::Transport(format!("no task '{other}'"))),
    }
}

fn collectives(comm: &Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    // Sums that depend on the order of addition, of lengths that are not multiples of the number of ranks.
    for length in [0, 1, 5, 1000, 300_001] {
        let numbers = |rank: usize| -> Vec<f32> {
            (0..length).map(|i| ((rank * 31 + i * 7) % 13) as f32 * 10f32.powi((rank + i) as i32 % 7 - 3)).collect()
        };
        let mut expected = numbers(0);
        (1..size).for_each(|rank| expected.iter_mut().zip(numbers(rank)).for_each(|(sum, x)| *sum += x));
        assert_eq!(comm.all_reduce("numbers", numbers(rank))?, expected, "{length}");
        let part = comm.part(length, rank);
        assert_eq!(comm.reduce_scatter("numbers", numbers(rank))?, expected[part], "{length}");
        assert_eq!(comm.broadcast("numbers", numbers(rank))?, numbers(0), "{length}");
    }
    let lists = comm.all_gather("lists", vec![rank as u64; rank])?;
    assert!(lists.iter().enumerate().all(|(from, list)| *list == vec![from as u64; from]));
    comm.agree("settings", &[("seed".to_owned(), "1".to_owned())])?;
    comm.barrier("of the test")?;
    println!("done {rank} of {size}");
    Ok(())
}

/// Key-value pairs, while another thread all-reduces.
fn pairs(comm: &Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (store, other) = (comm.key_value_store(), comm.key_value_store());
    let key = |i: usize| format!("local_topology/cuda/{i}");
    // Sizes from a single packet to many packets.
    let value = |i: usize| vec![i as u8; [0, 1, 300, 5_000, 70_000, 3_000_001][i % 6]];
    let keys = 30 * size;
    thread::scope(|scope| {
        let getters: Vec<_> = (0..2)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    for i in (thread..keys).step_by(2) {
                        assert_eq!(store.get(&key(i), LONG)?, value(i), "{i}");
                    }
                    Ok::<_, CommError>(())
                })
            })
            .collect();
        for i in (rank..keys).step_by(size) {
            store.put(&key(i), &value(i))?;
            let sum = comm.all_reduce("numbers", vec![rank as f64; 1000])?;
            assert_eq!(sum, [(size * (size - 1) / 2) as f64; 1000]);
        }
        getters.into_iter().try_for_each(|getter| getter.join().expect("no panic"))
    })?;
    assert!(matches!(store.put(&key(0), b""), Err(CommError::AlreadyPut { .. })));
    assert_eq!(store.try_get("nothing")?, None);
    // Stores are independent, and a large value arrives while its rank's program makes no MPI calls.
    let begun = Instant::now();
    if rank == size - 1 {
        other.put(&key(0), &vec![7; 20_000_000])?;
        thread::sleep(Duration::from_secs(3));
    } else {
        assert_eq!(other.get(&key(0), LONG)?, vec![7; 20_000_000]);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    // Pairs that no rank gets may be undelivered at the end.
    (0..5).try_for_each(|i| other.put(&format!("{rank} {i}"), &value(i)))?;
    println!("done {rank} of {size}");
    Ok(())
}
