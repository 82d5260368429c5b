//! A rank of the tests: `grove-mpi-worker TASK`. It prints what the tests look for, one line each.

use grove_communicator::{CommError, Communicator, Wire};
use std::{process::ExitCode, thread, time::Duration};

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
        // Until somebody ends it.
        "forever" => loop {
            let numbers = vec![comm.rank() as f32; 100_000];
            comm.start_all_reduce("numbers", numbers, Wire::Bf16)?.wait()?;
            comm.broadcast("numbers", vec![1u64; 1000])?;
        },
        // One rank fails by itself, the others wait for it.
        "failure" => {
            if comm.rank() == 1 && comm.fails_first() {
                eprintln!("error: the disk is full");
                comm.abort(1);
            }
            comm.barrier("before the checkpoint")
        }
        // Every rank fails for the same reason.
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
    // Sums that depend on the order of addition, of lengths that the ranks do not divide.
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
