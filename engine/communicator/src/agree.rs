use crate::{CommError, Communicator, Result};

impl Communicator {
    /// Checks that all ranks have the same facts: pairs of name and value. Long values may be replaced by digests.
    ///
    /// # Errors
    /// [`CommError::Differs`] on every rank, with the first differing fact of the lowest rank that differs from rank 0.
    pub fn agree(&self, what: &str, facts: &[(String, String)]) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let text: String = facts.iter().map(|(name, value)| format!("{name}\u{0}{value}\u{1}")).collect();
        let first = self.broadcast_text(what, text.clone())?;
        let difference = difference(&first, &text).map_or_else(String::new, |[name, was, is]| {
            let cut = |text: &str| text.chars().take(200).collect::<String>();
            format!("{}\u{0}{}\u{0}{}", cut(name), cut(was), cut(is))
        });
        for (number, bytes) in self.all_gather(what, difference.into_bytes())?.into_iter().enumerate() {
            let text = String::from_utf8_lossy(&bytes);
            let mut parts = text.split('\u{0}').map(str::to_owned);
            if let (Some(name), Some(was), Some(is)) = (parts.next(), parts.next(), parts.next()) {
                return Err(CommError::Differs { rank: self.describe(number), name, was, is });
            }
        }
        Ok(())
    }
}

/// Returns the first fact that differs: its name, and both values.
fn difference<'a>(first: &'a str, other: &'a str) -> Option<[&'a str; 3]> {
    if first == other {
        return None;
    }
    let facts = |text: &'a str| -> Vec<(&'a str, &'a str)> {
        text.split_terminator('\u{1}').filter_map(|fact| fact.split_once('\u{0}')).collect()
    };
    let (first, other) = (facts(first), facts(other));
    let missing = "missing";
    for i in 0..first.len().max(other.len()) {
        match (first.get(i), other.get(i)) {
            (Some(left), Some(right)) if left == right => {}
            (Some((name, was)), Some((same, is))) if name == same => return Some([name, was, is]),
            (Some((name, was)), _) => {
                let is = other.iter().find(|(other, _)| other == name).map_or(missing, |(_, is)| is);
                if is != *was {
                    return Some([name, was, is]);
                }
            }
            (None, Some((name, is))) => return Some([name, missing, is]),
            (None, None) => {}
        }
    }
    Some(["the order of the facts", "one", "another one"])
}
