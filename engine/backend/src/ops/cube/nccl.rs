//! All-reduces with NCCL, from GPU memory to GPU memory.

use burn::tensor::TensorMetadata;
use burn_cubecl::{kernel::into_contiguous, tensor::CubeTensor};
use burn_cuda::{Cuda, CudaDevice};
use cubecl::{cuda::CudaRuntime, future::block_on};
use grove_communicator::{CommError, Communicator};
use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        mpsc::{TryRecvError, sync_channel},
    },
    thread,
};

use super::{
    super::{AllReduce, Operation, Outcome, Ranks, Values},
    register::{FusedTensor, Inner, register_ready},
    tensor::empty,
};
use crate::device::nccl::{self, DeviceArray, Group};

/// Environment variable that disables NCCL if it is 0.
const VARIABLE: &str = "GROVE_NCCL";

/// Groups by index of the ranks and of the GPU; `None` if the sums go through the host.
type Groups = HashMap<(u32, usize), Option<Arc<Group>>>;

/// NCCL groups of this process.
static GROUPS: LazyLock<Mutex<Groups>> = LazyLock::new(Mutex::default);

/// See [`Backend::reduces`](crate::Backend::reduces).
pub(super) fn reduces(device: &CudaDevice, comm: &Communicator) -> bool {
    comm.is_shared() && group_of(Ranks::of(comm), device).is_some()
}

/// Returns the group of some ranks, which join it at the first call.
fn group_of(ranks: Ranks, device: &CudaDevice) -> Option<Arc<Group>> {
    let key = (ranks.number(), device.index);
    let lock = || GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = lock().get(&key) {
        return group.clone();
    }
    let comm = ranks.communicator();
    let group = meet(&comm, device.index).unwrap_or_else(|error| comm.end_job(&error)).map(Arc::new);
    lock().insert(key, group.clone());
    group
}

/// Joins the other ranks in a group, if all of them have NCCL and a GPU of their own.
fn meet(comm: &Communicator, index: usize) -> Result<Option<Group>, CommError> {
    let own = match std::env::var(VARIABLE) {
        Ok(value) if value.trim() == "0" => Err(format!("{VARIABLE} is 0")),
        _ => nccl::gpu(index),
    };
    let status = match own {
        Ok(gpu) => format!("+{gpu}"),
        Err(reason) => format!("-{reason}"),
    };
    let all = comm.all_gather("the GPUs of the ranks", status.into_bytes())?;
    let all: Vec<String> = all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    if let Some(reason) = reason_against(&all) {
        if comm.rank() == 0 {
            eprintln!("sums over the ranks go through the host's memory: {reason}");
        }
        return Ok(None);
    }
    let failed = |reason: String| CommError::Transport(format!("the start of NCCL: {reason}"));
    let id = if comm.rank() == 0 { nccl::unique_id().map_err(failed)? } else { vec![] };
    let id = comm.broadcast("the id of NCCL", id)?;
    // NCCL blocks until all ranks have joined, and does not notice a rank that has exited.
    let (sender, receiver) = sync_channel(1);
    let (rank, size) = (comm.rank(), comm.size());
    let start = || {
        thread::spawn(move || sender.send(Group::start(index, &id, rank, size)));
        Ok(())
    };
    let mut group = None;
    comm.run_on_devices("the start of NCCL", start, || match receiver.try_recv() {
        Ok(started) => {
            group = Some(started?);
            Ok(true)
        }
        Err(TryRecvError::Empty) => Ok(false),
        Err(TryRecvError::Disconnected) => Err("it has ended before".into()),
    })?;
    Ok(group)
}

/// Returns the reason not to use NCCL, if any, from each rank's GPU (after a `+`) or its own reason (after a `-`).
fn reason_against(all: &[String]) -> Option<String> {
    for (rank, status) in all.iter().enumerate() {
        if let Some(reason) = status.strip_prefix('-') {
            return Some(format!("rank {rank} has no NCCL: {reason}"));
        }
        if let Some(other) = all[..rank].iter().position(|other| other == status) {
            return Some(format!("ranks {other} and {rank} have the same GPU"));
        }
    }
    None
}

/// Runs the operation.
pub(super) fn all_reduce(sum: &AllReduce, inputs: Values<Cuda>, needs: &[bool]) -> Outcome<Cuda> {
    let inputs: Vec<FusedTensor<CudaRuntime>> = inputs.into_floats();
    let Some(device) = inputs.first().map(|x| x.client.device().clone()) else { return Outcome::new([]) };
    let Some(group) = group_of(sum.ranks, &device) else {
        return Operation::from(sum.clone()).compose(Values::floats(inputs), needs);
    };
    let comm = sum.ranks.communicator();
    let name = format!("all_reduce of {}", sum.what);
    // Empty arrays have no device memory, and are their own sums.
    let is_empty: Vec<bool> = inputs.iter().map(|x| x.shape().num_elements() == 0).collect();
    let (empty, given): (Vec<_>, Vec<_>) = inputs.into_iter().partition(|x| x.shape().num_elements() == 0);
    let sums = sums(&group, &comm, &name, given).unwrap_or_else(|error| comm.end_job(&error));
    let (mut empty, mut sums) = (empty.into_iter(), sums.into_iter());
    Outcome::new(is_empty.into_iter().filter_map(|is_empty| if is_empty { empty.next() } else { sums.next() }))
}

fn sums(
    group: &Group,
    comm: &Communicator,
    name: &str,
    inputs: Vec<FusedTensor<CudaRuntime>>,
) -> Result<Vec<FusedTensor<CudaRuntime>>, CommError> {
    let failed = |reason: String| CommError::Transport(format!("{name}: {reason}"));
    let Some(client) = inputs.first().map(|x| x.client.clone()) else { return Ok(inputs) };
    let resolved = |x: FusedTensor<CudaRuntime>| {
        let client = x.client.clone();
        into_contiguous(client.resolve_tensor_float::<Inner<CudaRuntime>>(x))
    };
    let own: Vec<CubeTensor<CudaRuntime>> = inputs.into_iter().map(resolved).collect();
    // In place, if nothing else holds the array.
    let in_place = |x: &CubeTensor<CudaRuntime>| x.handle.can_mut();
    let sums: Vec<Option<CubeTensor<CudaRuntime>>> =
        own.iter().map(|x| (!in_place(x)).then(|| empty(x, x.shape(), x.dtype))).collect();
    let (mut arrays, mut memory) = (Vec::new(), Vec::new());
    for (x, sum) in own.iter().zip(&sums) {
        let mut address = |x: &CubeTensor<CudaRuntime>| {
            let resource = x.client.get_resource(x.handle.clone()).map_err(|error| failed(format!("{error:?}")))?;
            let address = resource.resource().ptr;
            memory.push(resource);
            Ok::<u64, CommError>(address)
        };
        let send = address(x)?;
        let receive = sum.as_ref().map_or(Ok(send), &mut address)?;
        arrays.push(DeviceArray { send, receive, count: x.shape().num_elements(), dtype: x.dtype });
    }
    // NCCL's stream is not that of the kernels that compute the arrays, so wait for them.
    if let Some(x) = own.first() {
        block_on(x.client.sync()).map_err(|error| failed(format!("{error:?}")))?;
    }
    comm.run_on_devices(name, || group.all_reduce(&arrays), || group.is_done())?;
    drop(memory);
    let ready: Vec<CubeTensor<CudaRuntime>> = own.into_iter().zip(sums).map(|(x, sum)| sum.unwrap_or(x)).collect();
    Ok(register_ready(client, "all_reduce", ready))
}

#[cfg(test)]
mod tests {
    use super::reason_against;

    #[test]
    fn ranks_need_a_gpu_each() {
        let all = |status: &[&str]| reason_against(&status.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert_eq!(all(&["+a", "+b", "+c"]), None);
        assert_eq!(all(&["+a", "-NCCL was not found"]).unwrap(), "rank 1 has no NCCL: NCCL was not found");
        assert_eq!(all(&["+a", "+b", "+b"]).unwrap(), "ranks 1 and 2 have the same GPU");
    }
}
