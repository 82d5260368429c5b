//! Graphs as JSON.

use burn::tensor::{BoolStore, DType};
use serde::Serialize;
use serde_json::Value;

use super::{Graph, GraphError, Var, check, error::VERSION};
use crate::Primitive;

/// Maximum integer in the shapes and parameters of a file. Sums and products of two such integers fit 64 bits.
const LARGEST: u64 = 1 << 32;

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    version: u64,
    graph: &'a Graph,
}

/// Name of the format: the first field of a file.
const FORMAT: &str = "grove graph";

impl Graph {
    /// Serialises the graph to JSON, including constants. [`from_json`](Self::from_json) reads it.
    ///
    /// Values are preserved bit for bit: constants are stored as base64 of their little-endian bytes, and other floating-point
    /// numbers as text.
    ///
    /// # Errors
    /// If the graph has a fused chain. Only graphs from [`jit`](crate::jit()) have fused chains.
    pub fn to_json(&self) -> Result<String, GraphError> {
        if let Some(equation) = self.equations.iter().position(|equation| has_chains(&equation.primitive)) {
            return Err(GraphError::Fused { equation });
        }
        let written = Written { format: FORMAT, version: VERSION, graph: self };
        serde_json::to_string(&written).map_err(|error| GraphError::Syntax(error.to_string()))
    }

    /// Reads a graph written by [`to_json`](Self::to_json).
    ///
    /// The graph is checked: each variable is assigned once and before its use, and shapes and dtypes fit the operations.
    ///
    /// # Errors
    /// If the text is not JSON, has a newer version, or is not a graph that can run. The error names the place and the defect.
    pub fn from_json(text: &str) -> Result<Self, GraphError> {
        let syntax = |text: String| GraphError::Syntax(text);
        let mut value: Value = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(syntax(format!("it has no field `format` with the value \"{FORMAT}\"")));
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if (1..=VERSION).contains(&version) => {}
            Some(found) => return Err(GraphError::Version { found }),
            None => return Err(syntax("it has no field `version` with a whole number".into())),
        }
        let graph = value.get_mut("graph").map(Value::take).ok_or_else(|| syntax("it has no field `graph`".into()))?;
        moderate(&graph, &mut String::from("graph"))?;
        let graph: Self = serde_path_to_error::deserialize(graph).map_err(|error| {
            let path = error.path().to_string();
            syntax(format!("`graph.{path}`: {}", error.into_inner()))
        })?;
        graph.check()?;
        Ok(graph)
    }

    /// Returns an error unless each variable is assigned once and before its use, and shapes and dtypes fit the operations.
    pub(crate) fn check(&self) -> Result<(), GraphError> {
        check::check(self)
    }
}

/// Returns true for fused chains and for operations with sub-graphs that contain them.
fn has_chains(primitive: &Primitive) -> bool {
    match primitive {
        Primitive::Fused(_) => true,
        Primitive::HigherOrder(op) => {
            let mut graphs = op.sub_graphs().into_iter();
            graphs.any(|(_, graph)| graph.equations.iter().any(|equation| has_chains(&equation.primitive)))
        }
        _ => false,
    }
}

/// Returns an error if a number exceeds the maximum: sums and products of sizes would overflow.
fn moderate(value: &Value, path: &mut String) -> Result<(), GraphError> {
    let length = path.len();
    match value {
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            match size {
                Some(size) if size <= LARGEST => Ok(()),
                _ => Err(GraphError::Syntax(format!("`{path}` is {number}; the largest integer is {LARGEST}"))),
            }
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(i, item)| {
            path.truncate(length);
            path.push_str(&format!("[{i}]"));
            moderate(item, path)
        }),
        Value::Object(fields) => fields.iter().try_for_each(|(name, item)| {
            path.truncate(length);
            path.push_str(&format!(".{name}"));
            moderate(item, path)
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Serialisation of constants: variables with shapes, dtypes and bytes.
pub(super) mod constants {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use burn::tensor::{DType, TensorData};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::{Var, fits};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Constant {
        variable: Var,
        shape: Vec<usize>,
        dtype: DType,
        base64: String,
    }

    pub fn serialize<S: Serializer>(constants: &[(Var, TensorData)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(constants.iter().map(|(variable, data)| Constant {
            variable: *variable,
            shape: data.shape.to_vec(),
            dtype: data.dtype,
            base64: STANDARD.encode(data.as_bytes()),
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Var, TensorData)>, D::Error> {
        let data = |constant: Constant| {
            let bytes = STANDARD.decode(&constant.base64).map_err(|error| format!("its bytes: {error}"))?;
            fits(&bytes, &constant.shape, constant.dtype)?;
            Ok((constant.variable, TensorData::from_bytes_vec(bytes, constant.shape, constant.dtype)))
        };
        let constants = Vec::<Constant>::deserialize(deserializer)?;
        let numbered = constants.into_iter().enumerate();
        numbered
            .map(|(i, constant)| {
                data(constant).map_err(|text: String| D::Error::custom(format!("constant {i}: {text}")))
            })
            .collect()
    }
}

/// Returns an error unless the bytes are valid elements of an array with this shape and dtype.
fn fits(bytes: &[u8], shape: &[usize], dtype: DType) -> Result<(), String> {
    if matches!(dtype, DType::QFloat(_)) {
        return Err("quantized constants are not stored".into());
    }
    let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    let expected = elements.and_then(|elements| elements.checked_mul(dtype.size()));
    if expected != Some(bytes.len()) {
        return Err(format!("{} bytes for an array {}{shape:?}", bytes.len(), crate::words::dtype_name(dtype)));
    }
    let boolean = match dtype {
        DType::Bool(BoolStore::Native | BoolStore::U8) => bytes.iter().all(|byte| *byte <= 1),
        DType::Bool(BoolStore::U32) => bytes.chunks(4).all(|word| word[0] <= 1 && word[1..] == [0; 3]),
        _ => true,
    };
    if boolean { Ok(()) } else { Err("a boolean that is neither 0 nor 1".into()) }
}
