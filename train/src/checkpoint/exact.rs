//! Exact round trip of f64 through JSON. serde_json does not guarantee the last bit of a number that it reads, and
//! writes `null` for NaN and infinity. These modules write numbers as strings, and read both strings and JSON numbers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::collections::BTreeMap;

struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `{:?}` writes the shortest string that parses to the same number.
        serializer.serialize_str(&format!("{:?}", self.0))
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => {
                text.parse().map(Self).map_err(|_| D::Error::custom(format!("`{text}` is not a number")))
            }
        }
    }
}

/// A step and the value of a metric.
pub(super) mod scored {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(best: &Option<(u64, f64)>, serializer: S) -> Result<S::Ok, S::Error> {
        best.map(|(step, loss)| (step, Exact(loss))).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<(u64, f64)>, D::Error> {
        let best = Option::<(u64, Exact)>::deserialize(deserializer)?;
        Ok(best.map(|(step, Exact(loss))| (step, loss)))
    }
}

/// An optional number.
pub(super) mod number {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(Exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Exact>::deserialize(deserializer)?.map(|Exact(number)| number))
    }
}

/// Sum and count of each named metric.
pub(super) mod sums {
    use super::*;

    type Sums = BTreeMap<String, (f64, u64)>;

    pub(crate) fn serialize<S: Serializer>(sums: &Sums, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(sums.iter().map(|(name, (sum, count))| (name, (Exact(*sum), count))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sums, D::Error> {
        let sums = BTreeMap::<String, (Exact, u64)>::deserialize(deserializer)?;
        Ok(sums.into_iter().map(|(name, (Exact(sum), count))| (name, (sum, count))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_comes_back() {
        let mut bits = 1u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let text = serde_json::to_string(&Exact(f64::from_bits(bits))).expect("written");
            let Exact(read) = serde_json::from_str(&text).expect(&text);
            let same = read.to_bits() == bits || read.is_nan() && f64::from_bits(bits).is_nan();
            assert!(same, "{text} was read as {read:?}");
        }
        let Exact(number) = serde_json::from_str("2.5").expect("a plain number");
        assert_eq!(number, 2.5);
        assert!(serde_json::from_str::<Exact>("\"two\"").is_err());
    }
}
