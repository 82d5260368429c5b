//! Types of a compiled program's parameters, from its serialised form: XLA's hlo.proto and xla_data.proto.

use prost::Message;

use crate::{
    dtype::{ArrayType, ElementType},
    error::{Result, XlaError},
};

/// Returns an error if the declared parameters differ from the program's. `None`: the program's parameters are unknown.
pub(crate) fn check(declared: &[ArrayType], program: Option<Vec<Parameter>>) -> Result<()> {
    let Some(program) = program else { return Ok(()) };
    let (found, expected) = (declared.len(), program.len());
    if found != expected {
        return Err(XlaError::ArgumentCount { found, expected, what: "parameters" });
    }
    for (index, (declared, parameter)) in declared.iter().zip(&program).enumerate() {
        if parameter.array.as_ref() != Some(declared) {
            let (found, expected) = (declared.to_string(), parameter.text.clone());
            return Err(XlaError::Parameter { index, found, expected });
        }
    }
    Ok(())
}

/// A parameter of a program.
pub(crate) struct Parameter {
    /// Type of the parameter; `None` if grove has no arrays of this type.
    array: Option<ArrayType>,
    /// The type as text.
    text: String,
}

/// Returns the parameters of a serialised program; `None` if the format is unknown.
pub(crate) fn parameters(format: &str, program: &[u8]) -> Option<Vec<Parameter>> {
    let module = match format {
        "hlo" => HloModule::decode(program).ok()?,
        "hlo_with_config" => HloModuleWithConfig::decode(program).ok()?.module?,
        _ => return None,
    };
    let mut shapes = module.program_shape?.parameters;
    // Some platforms pass all arguments as one tuple.
    if let [Shape { element_type: TUPLE, parts, .. }] = &mut shapes[..] {
        shapes = std::mem::take(parts);
    }
    Some(shapes.iter().map(Shape::parameter).collect())
}

/// Code of a tuple in XLA's `PrimitiveType`.
const TUPLE: i32 = 13;

impl Shape {
    fn parameter(&self) -> Parameter {
        let dims = self.dimensions.iter().map(|dim| *dim as usize);
        let element = u32::try_from(self.element_type).ok().and_then(ElementType::of_primitive);
        let array = element.map(|element| ArrayType::new(element, dims.collect::<Vec<_>>()));
        let unknown = || format!("an array of the type with code {}, which grove does not support", self.element_type);
        Parameter { text: array.as_ref().map_or_else(unknown, ArrayType::to_string), array }
    }
}

// Unneeded fields are omitted; decoding skips them.

#[derive(Clone, PartialEq, Message)]
struct HloModuleWithConfig {
    #[prost(message, optional, tag = "1")]
    module: Option<HloModule>,
}

#[derive(Clone, PartialEq, Message)]
struct HloModule {
    #[prost(message, optional, tag = "4")]
    program_shape: Option<ProgramShape>,
}

#[derive(Clone, PartialEq, Message)]
struct ProgramShape {
    #[prost(message, repeated, tag = "1")]
    parameters: Vec<Shape>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(int32, tag = "2")]
    element_type: i32,
    #[prost(int64, repeated, tag = "3")]
    dimensions: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    parts: Vec<Shape>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_parameters_of_both_formats_and_of_tuples() {
        let shape =
            |element_type, dimensions: &[i64]| Shape { element_type, dimensions: dimensions.into(), parts: vec![] };
        let shapes = vec![shape(11, &[2, 3]), shape(16, &[]), shape(15, &[1])];
        let tuple = Shape { element_type: TUPLE, dimensions: vec![], parts: shapes.clone() };
        for parameters in [shapes, vec![tuple]] {
            let module = HloModule { program_shape: Some(ProgramShape { parameters }) };
            let with_config = HloModuleWithConfig { module: Some(module.clone()) };
            for (format, bytes) in [("hlo", module.encode_to_vec()), ("hlo_with_config", with_config.encode_to_vec())] {
                let found = super::parameters(format, &bytes).unwrap();
                let found: Vec<&str> = found.iter().map(|parameter| &*parameter.text).collect();
                assert_eq!(
                    found,
                    ["f32[2,3]", "bf16[]", "an array of the type with code 15, which grove does not support"]
                );
            }
        }
        assert!(parameters("mlir", &[]).is_none() && parameters("hlo", &[255]).is_none());
    }
}
