//! Labelled data on the command line.

/// For clap: the character between columns.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one character, such as ';', or tab".into()),
    }
}

/// Names that are told of a list.
const TOLD: usize = 10;

/// Says of which classes an evaluation tells nothing, as none of its examples is of them.
pub fn tell_unheld(labels: &[String], held_out: impl IntoIterator<Item = usize>) {
    let mut held = vec![false; labels.len()];
    for class in held_out {
        if let Some(held) = held.get_mut(class) {
            *held = true;
        }
    }
    // An evaluation set of nothing was requested.
    if !held.contains(&true) {
        return;
    }
    let unheld: Vec<&str> =
        labels.iter().zip(held).filter(|(_, held)| !held).map(|(label, _)| label.as_str()).collect();
    let more = match unheld.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !unheld.is_empty() {
        let named = unheld.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
        eprintln!("warning: the evaluation has no example of these classes: {named}{more}");
    }
}
