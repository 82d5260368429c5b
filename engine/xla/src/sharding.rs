//! Trees of arrays on meshes: `jax.device_put` with shardings.

use grove_backend::{AnyTensor, Backend};
use grove_compile::{TraceDevice, array_of, lazy_array, lazy_device};
use grove_tree::{AnyArray, Path, Tree, by_path, path_fits};
use std::sync::{Arc, PoisonError, Weak};

use crate::{
    Compiled, CompiledMemory, ExecutableCache, Mesh, NamedValue, PartitionSpec, Result, Xla, XlaError,
    engine::{Layouts, OnMesh, Programs, sharded},
    sharded::{ShardedArray, text},
};

/// A mesh as a device of grove's arrays; see [`Mesh::lazy`].
#[derive(Clone, Debug)]
pub struct MeshDevice {
    mesh: Mesh,
    device: TraceDevice,
    programs: Programs,
    layouts: Layouts,
}

impl Mesh {
    /// Creates a device of grove's arrays from this mesh. New arrays are replicated; [`MeshDevice::shard`] splits arrays, and
    /// computation follows: XLA partitions operations like their arguments, and inserts the required collectives.
    ///
    /// Later arrays, and results, have the specification of the first split array of their shape and dtype: batches that of the
    /// first batch, moments of an optimizer that of the parameters, parameters from a checkpoint that of the parameters that they
    /// replace.
    pub fn lazy(&self) -> MeshDevice {
        self.lazy_with(ExecutableCache::of_user())
    }

    /// [`lazy`](Self::lazy), with compiled programs stored in `cache`.
    pub fn lazy_with(&self, cache: ExecutableCache) -> MeshDevice {
        let programs = Programs::default();
        let layouts = Layouts::default();
        let engine =
            OnMesh { programs: programs.clone(), layouts: layouts.clone(), ..OnMesh::new(self.clone(), cache) };
        MeshDevice { mesh: self.clone(), device: lazy_device(engine), programs, layouts }
    }
}

impl MeshDevice {
    /// Returns the mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the device, for functions that take one.
    pub fn device(&self) -> &TraceDevice {
        &self.device
    }

    /// Moves a tree onto the mesh: `jax.device_put` with a `NamedSharding` for each leaf. A leaf gets the specification of the
    /// first pattern that matches its path, such as `**.c_attn.weight`. Leaves that match no pattern are replicated.
    ///
    /// # Errors
    /// If a specification names an axis that the mesh lacks, or does not divide a leaf; if a pattern matches no leaf; or if a
    /// device is out of memory.
    pub fn shard<B: Backend, T: Tree<B>>(
        &self,
        tree: T,
        specs: &[(impl AsRef<str>, PartitionSpec)],
    ) -> Result<T::On<Xla>> {
        for (pattern, _) in specs {
            by_path(pattern.as_ref()).check(&tree).map_err(|error| XlaError::Pattern(error.to_string()))?;
        }
        let mut failed = None;
        let tree = tree.lift::<Xla>(&mut Path::root(), &mut |path, leaf| {
            let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
            let absent = || AnyArray::absent(shape.clone(), dtype);
            let Some(data) = leaf.into_data().filter(|_| failed.is_none()) else { return absent() };
            let found = specs.iter().find(|(pattern, _)| path_fits(pattern.as_ref(), &path.to_string()));
            let spec = found.map_or_else(PartitionSpec::replicated, |(_, spec)| spec.clone());
            match ShardedArray::upload(&self.mesh, data, &spec) {
                Ok(array) => {
                    self.remember(&array);
                    AnyArray::present(lazy_array(&self.device, Arc::new(array), shape.clone(), dtype))
                }
                Err(reason) => {
                    failed = Some(XlaError::Sharding { leaf: path.to_string(), reason });
                    absent()
                }
            }
        });
        failed.map_or(Ok(tree), Err)
    }

    /// Records the specification of a split array for later arrays of its type.
    fn remember(&self, array: &ShardedArray) {
        if !array.spec.is_replicated() {
            let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
            layouts.entry(array.array.clone()).or_insert_with(|| array.spec.clone());
        }
    }

    /// Returns the live programs that were compiled for the mesh, most recent last.
    pub fn programs(&self) -> Vec<ProgramSummary> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.iter().filter_map(Weak::upgrade).map(|program| ProgramSummary::of(program.compiled())).collect()
    }
}

/// Memory, cost and collectives of a compiled program on each device.
#[derive(Clone, Debug)]
pub struct ProgramSummary {
    /// Memory on each device; `None` if the plugin does not provide it.
    pub memory: Option<CompiledMemory>,
    /// XLA's estimates, such as `flops`.
    pub cost: Vec<(String, NamedValue)>,
    /// Number of collectives of each of XLA's kinds: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all`,
    /// `collective-permute`.
    pub collectives: Vec<(String, usize)>,
}

impl ProgramSummary {
    fn of(compiled: &Compiled) -> Self {
        const KINDS: [&str; 5] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"];
        let program = compiled.optimized_program().unwrap_or_default();
        let count = |kind: &str| opcodes(&program, kind);
        Self {
            memory: compiled.memory().ok(),
            cost: compiled.cost().unwrap_or_default(),
            collectives: KINDS
                .into_iter()
                .map(|kind| (kind.to_owned(), count(kind) + count(&format!("{kind}-start"))))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}

/// Returns the number of instructions of a kind in a serialised HLO module. Searches for the kind's name as a length-prefixed
/// string in field 2 of an instruction.
fn opcodes(program: &[u8], kind: &str) -> usize {
    let field = [&[0x12, kind.len() as u8], kind.as_bytes()].concat();
    program.windows(field.len()).filter(|window| *window == field).count()
}

/// Visualises the distribution of an array over its mesh: a grid with the devices of each part along the first two axes, like
/// `jax.debug.visualize_array_sharding`.
///
/// # Errors
/// If the array is not on a mesh, or if the program that computes it failed.
pub fn visualize(x: &AnyTensor<Xla>, mesh: &Mesh) -> std::result::Result<String, String> {
    let array = array_of(x)?;
    let array = sharded(&array)?;
    let dims = &array.array.dims;
    // The parts, each with its devices; only blocks of the first two axes are shown.
    let mut parts: Vec<(Vec<[usize; 2]>, Vec<String>)> = Vec::new();
    for (i, device) in mesh.devices().iter().enumerate() {
        let block = mesh.block(&array.spec, dims, i);
        let id = device.id().map_err(text)?.to_string();
        match parts.iter_mut().find(|(known, _)| *known == block) {
            Some((_, devices)) => devices.push(id),
            None => parts.push((block, vec![id])),
        }
    }
    let start = |block: &[[usize; 2]], axis: usize| block.get(axis).map_or(0, |range| range[0]);
    let mut rows: Vec<usize> = parts.iter().map(|(block, _)| start(block, 0)).collect();
    rows.sort_unstable();
    rows.dedup();
    let in_row = |row: usize| {
        let mut cells: Vec<(usize, String)> = parts
            .iter()
            .filter(|(block, _)| start(block, 0) == row)
            .map(|(block, devices)| (start(block, 1), format!(" {} ", devices.join(","))))
            .collect();
        cells.sort();
        cells.into_iter().map(|(_, cell)| cell).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(in_row).collect();
    let width = rows.iter().flatten().map(String::len).max().unwrap_or(0);
    let columns = rows.first().map_or(0, Vec::len);
    let line = |left: char, middle: char, right: char| {
        let dashes = vec!["─".repeat(width); columns].join(&middle.to_string());
        format!("{left}{dashes}{right}")
    };
    let of_row = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().map(|cell| format!("{cell:^width$}")).collect();
        format!("│{}│", cells.join("│"))
    };
    let inner = rows.iter().map(of_row).collect::<Vec<_>>().join(&format!("\n{}\n", line('├', '┼', '┤')));
    Ok(format!("{}\n{inner}\n{}", line('┌', '┬', '┐'), line('└', '┴', '┘')))
}
