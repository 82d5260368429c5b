//! Default dtypes of backends.

use burn::tensor::{BoolDType, BoolStore, DType, Element, FloatDType, IntDType};
use burn_backend::get_device_settings;
use serde::{Deserialize, Serialize};

/// Default dtypes of the backend that a trace is for. Arrays created in the traced function have these dtypes, as without the
/// trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TypeNames", into = "TypeNames")]
pub(crate) struct Types {
    pub float: FloatDType,
    pub int: IntDType,
    pub boolean: BoolDType,
}

impl Types {
    const FLOATS: [FloatDType; 5] =
        [FloatDType::F32, FloatDType::F64, FloatDType::F16, FloatDType::BF16, FloatDType::Flex32];
    const INTS: [IntDType; 2] = [IntDType::I64, IntDType::I32];
    const BOOLEANS: [BoolDType; 3] = [BoolDType::Native, BoolDType::U8, BoolDType::U32];

    /// Returns the default dtypes of a device, or of the backend if the device is unknown.
    pub(crate) fn of<B: burn_backend::Backend>(device: Option<&B::Device>) -> Self {
        match device {
            Some(device) => {
                let settings = get_device_settings::<B>(device);
                Self { float: settings.float_dtype, int: settings.int_dtype, boolean: settings.bool_dtype }
            }
            None => Self {
                float: B::FloatElem::dtype().into(),
                int: B::IntElem::dtype().into(),
                boolean: BoolDType::Native,
            },
        }
    }

    pub(crate) fn to_number(self) -> u16 {
        let float = Self::FLOATS.iter().position(|float| *float == self.float).unwrap_or_default();
        let int = Self::INTS.iter().position(|int| *int == self.int).unwrap_or_default();
        let boolean = Self::BOOLEANS.iter().position(|boolean| *boolean == self.boolean).unwrap_or_default();
        ((float * Self::INTS.len() + int) * Self::BOOLEANS.len() + boolean) as u16
    }

    pub(crate) fn from_number(number: u16) -> Self {
        let (rest, boolean) = (usize::from(number) / Self::BOOLEANS.len(), usize::from(number) % Self::BOOLEANS.len());
        let (float, int) = (rest / Self::INTS.len(), rest % Self::INTS.len());
        Self { float: Self::FLOATS[float % Self::FLOATS.len()], int: Self::INTS[int], boolean: Self::BOOLEANS[boolean] }
    }
}

/// Default dtypes in serialised form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeNames {
    float: DType,
    int: DType,
    boolean: BoolStore,
}

impl From<Types> for TypeNames {
    fn from(types: Types) -> Self {
        Self { float: types.float.into(), int: types.int.into(), boolean: types.boolean }
    }
}

impl TryFrom<TypeNames> for Types {
    type Error = String;

    fn try_from(names: TypeNames) -> Result<Self, String> {
        if !names.float.is_float() {
            return Err(format!("the default floating-point dtype cannot be {:?}", names.float));
        }
        let float = names.float.into();
        let int = match names.int {
            DType::I64 => IntDType::I64,
            DType::I32 => IntDType::I32,
            other => return Err(format!("the default integer dtype is I64 or I32, not {other:?}")),
        };
        let boolean: BoolDType = names.boolean;
        Ok(Self { float, int, boolean })
    }
}
