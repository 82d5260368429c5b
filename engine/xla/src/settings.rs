//! Options of a plugin when it creates a client or a topology.

use crate::{
    error::{Result, XlaError},
    plugin::{NamedValue, raw_values},
    sys,
};

/// Maximum number of virtual devices of the CPU plugin. Each has its own threads: 100000 devices take minutes to start.
const MAX_CPU_DEVICES: i64 = 1024;

/// Valid values of an option.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    Float,
    /// An integer from the minimum to the maximum.
    Int(i64, i64),
    Ints,
}

impl Kind {
    const ANY_INT: Self = Self::Int(i64::MIN, i64::MAX);

    fn takes(self, value: &NamedValue) -> bool {
        match (self, value) {
            (Self::Int(least, most), NamedValue::Int(value)) => (least..=most).contains(value),
            (Self::Text, NamedValue::String(_))
            | (Self::Flag, NamedValue::Bool(_))
            | (Self::Float, NamedValue::Float(_))
            | (Self::Ints, NamedValue::Ints(_)) => true,
            _ => false,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Flag => "a boolean".into(),
            Self::Float => "a floating-point number".into(),
            Self::Int(i64::MIN, _) => "an integer".into(),
            Self::Int(least, most) => format!("an integer from {least} to {most}"),
            Self::Ints => "a list of integers".into(),
        }
    }
}

/// Options of the CPU and CUDA plugins. A plugin that gets another type throws a C++ exception, which ends the process.
const KNOWN: [(&str, Kind); 20] = [
    ("cpu_device_count", Kind::Int(1, MAX_CPU_DEVICES)),
    ("asynchronous", Kind::Flag),
    ("max_inflight_computations", Kind::Int(1, i32::MAX as i64)),
    ("pooling_allocator", Kind::Flag),
    ("platform_name", Kind::Text),
    ("allocator", Kind::Text),
    ("memory_fraction", Kind::Float),
    ("preallocate", Kind::Flag),
    ("collective_memory_size", Kind::ANY_INT),
    ("visible_devices", Kind::Ints),
    ("node_id", Kind::ANY_INT),
    ("num_nodes", Kind::ANY_INT),
    ("should_stage_host_to_device_transfers", Kind::Flag),
    ("abort_collectives_on_failure", Kind::Flag),
    ("use_tfrt_gpu_client", Kind::Flag),
    ("enable_mock_nccl", Kind::Flag),
    ("mock_gpu_topology", Kind::Text),
    ("partition_index", Kind::ANY_INT),
    ("target_config", Kind::Text),
    ("topology", Kind::Text),
];

/// Converts options for the API after checking the types of the known ones. The results point into `options`.
pub(crate) fn checked(options: &[(String, NamedValue)]) -> Result<Vec<sys::NamedValue>> {
    for (name, value) in options {
        if let NamedValue::Unknown(_) = value {
            let expected = "a string, a boolean, a number or a list of integers".into();
            return Err(XlaError::Option { name: name.clone(), found: described(value), expected });
        }
        let Some((_, kind)) = KNOWN.iter().find(|(known, _)| known == name) else { continue };
        if !kind.takes(value) {
            return Err(XlaError::Option { name: name.clone(), found: described(value), expected: kind.name() });
        }
    }
    Ok(raw_values(options))
}

fn described(value: &NamedValue) -> String {
    match value {
        NamedValue::String(value) => format!("the string {value:?}"),
        NamedValue::Int(value) => format!("the integer {value}"),
        NamedValue::Ints(value) => format!("the list of integers {value:?}"),
        NamedValue::Float(value) => format!("the floating-point number {value}"),
        NamedValue::Bool(value) => format!("the boolean {value}"),
        NamedValue::Unknown(kind) => format!("a value of the unknown kind {kind}"),
    }
}
