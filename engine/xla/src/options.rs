//! Compile options, encoded as the API's message: XLA's compile_options.proto and xla_data.proto.

use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Result, XlaError};

/// Compile options.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// Numbers of the devices, one for each partition of the program; see [`Device::id`](crate::Device::id). If empty, the first
    /// device.
    pub devices: Vec<i32>,
    /// Replicas that run the program in parallel and all-reduce among themselves, instead of partitions.
    pub replicas: Option<Replicas>,
    /// If true, Shardy partitions the program by its `sdy` annotations.
    pub shardy: bool,
    /// XLA flags for this program only, such as `xla_cpu_enable_fast_math`. An unknown flag is an error here; in the variable
    /// `XLA_FLAGS` it ends the process.
    pub flags: BTreeMap<String, Flag>,
}

/// The replicas of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Numbers of the devices of all replicas, over all processes of the client.
    pub devices: Vec<i32>,
    /// Number of replicas in this process.
    pub local: usize,
}

/// The value of a flag.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names are self-explanatory.
pub enum Flag {
    String(String),
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl Default for CompileOptions {
    /// Options for the first device.
    fn default() -> Self {
        Self { devices: vec![], replicas: None, shardy: false, flags: BTreeMap::new() }
    }
}

impl CompileOptions {
    /// Returns the number of this process's devices that run the program.
    pub fn partitions(&self) -> usize {
        self.replicas.as_ref().map_or(self.devices.len().max(1), |replicas| replicas.local)
    }

    /// Returns these options with the platform's flags that propagate NaN in minima and maxima.
    pub(crate) fn on(&self, platform: &str) -> Self {
        let mut options = self.clone();
        if platform == "cpu" {
            // The CPU's default drops a NaN on the right: the maximum of 1 and NaN is 1.
            options.flags.entry("xla_cpu_enable_fast_min_max".into()).or_insert(Flag::Bool(false));
        }
        options
    }

    /// Encodes the message.
    ///
    /// # Errors
    /// If a device is named twice: plugins would end the process, or fail when the program runs.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let devices = self.replicas.as_ref().map_or(&self.devices, |replicas| &replicas.devices);
        let mut seen = BTreeSet::new();
        if let Some(id) = devices.iter().find(|id| !seen.insert(**id)) {
            return Err(XlaError::DeviceTwice(*id));
        }
        let ids = |ids: &[i32]| ComputationDevice { replica_device_ids: ids.iter().copied().map(i64::from).collect() };
        let (replicas, partitions, computation_devices) = match self.replicas {
            Some(_) => (devices.len(), 1, vec![ids(devices)]),
            None => (1, devices.len().max(1), devices.chunks(1).map(ids).collect()),
        };
        let assignment = DeviceAssignment {
            replica_count: replicas as i32,
            computation_count: partitions as i32,
            computation_devices,
        };
        let build = BuildOptions {
            device_ordinal: -1,
            num_replicas: replicas as i64,
            num_partitions: partitions as i64,
            use_spmd_partitioning: partitions > 1 || self.shardy,
            device_assignment: (!devices.is_empty()).then_some(assignment),
            use_shardy_partitioner: self.shardy,
        };
        let overrides = self.flags.iter().map(|(name, flag)| (name.clone(), flag.encode())).collect();
        Ok(Options { executable_build_options: Some(build), env_option_overrides: overrides }.encode_to_vec())
    }
}

impl Flag {
    fn encode(&self) -> OptionOverride {
        let value = match self {
            Self::String(value) => Override::String(value.clone()),
            Self::Bool(value) => Override::Bool(*value),
            Self::Int(value) => Override::Int(*value),
            Self::Float(value) => Override::Double(*value),
        };
        OptionOverride { value: Some(value) }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Options {
    #[prost(message, optional, tag = "3")]
    executable_build_options: Option<BuildOptions>,
    #[prost(btree_map = "string, message", tag = "7")]
    env_option_overrides: BTreeMap<String, OptionOverride>,
}

#[derive(Clone, PartialEq, Message)]
struct BuildOptions {
    #[prost(int64, tag = "1")]
    device_ordinal: i64,
    #[prost(int64, tag = "4")]
    num_replicas: i64,
    #[prost(int64, tag = "5")]
    num_partitions: i64,
    #[prost(bool, tag = "6")]
    use_spmd_partitioning: bool,
    #[prost(message, optional, tag = "9")]
    device_assignment: Option<DeviceAssignment>,
    #[prost(bool, tag = "19")]
    use_shardy_partitioner: bool,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceAssignment {
    #[prost(int32, tag = "1")]
    replica_count: i32,
    #[prost(int32, tag = "2")]
    computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    computation_devices: Vec<ComputationDevice>,
}

#[derive(Clone, PartialEq, Message)]
struct ComputationDevice {
    #[prost(int64, repeated, tag = "1")]
    replica_device_ids: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct OptionOverride {
    #[prost(oneof = "Override", tags = "1, 2, 3, 4")]
    value: Option<Override>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Override {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}
