//! Patterns of dotted names, with captures.

/// A dotted name with variable parts: `h.{i}.attn.c_attn.weight`.
///
/// `{i}` matches one or more characters without a dot, at most once per segment (`encoder_layer_{i}` is valid). A
/// segment `*` matches any one segment, and a segment `**` any number of segments, including none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Capture { before: String, name: String, after: String },
    One,
    Any,
}

/// Names and values of a pattern's captures.
pub(crate) type Captures = Vec<(String, String)>;

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let segment = |text: &str| match text {
            "*" => Segment::One,
            "**" => Segment::Any,
            _ => match text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
                Some((before, (name, after))) => {
                    Segment::Capture { before: before.into(), name: name.into(), after: after.into() }
                }
                None => Segment::Literal(text.into()),
            },
        };
        Self { text: text.into(), segments: text.split('.').map(segment).collect() }
    }

    /// Returns the pattern as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the captures if all of `name` matches.
    pub(crate) fn matches(&self, name: &str) -> Option<Captures> {
        let parts: Vec<&str> = name.split('.').collect();
        let mut captures = Captures::new();
        fits(&self.segments, &parts, &mut captures).then_some(captures)
    }

    /// Returns the name for these captures; `None` if a capture is missing, or for wildcards.
    pub(crate) fn expand(&self, captures: &Captures) -> Option<String> {
        let segment = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(text.clone()),
            Segment::Capture { before, name, after } => {
                let (_, value) = captures.iter().find(|(captured, _)| captured == name)?;
                Some(format!("{before}{value}{after}"))
            }
            Segment::One | Segment::Any => None,
        };
        let segments: Option<Vec<String>> = self.segments.iter().map(segment).collect();
        Some(segments?.join("."))
    }
}

fn fits(segments: &[Segment], parts: &[&str], captures: &mut Captures) -> bool {
    let Some((segment, later)) = segments.split_first() else { return parts.is_empty() };
    if *segment == Segment::Any {
        let known = captures.len();
        return (0..=parts.len()).any(|skipped| {
            captures.truncate(known);
            fits(later, &parts[skipped..], captures)
        });
    }
    let Some((part, rest)) = parts.split_first() else { return false };
    let fits_here = match segment {
        Segment::Literal(text) => part == text,
        Segment::Capture { before, name, after } => {
            let inner = part.strip_prefix(&**before).and_then(|part| part.strip_suffix(&**after));
            match inner.filter(|inner| !inner.is_empty()) {
                // A repeated capture must match the same text.
                Some(inner) => match captures.iter().find(|(known, _)| known == name) {
                    Some((_, value)) => value == inner,
                    None => {
                        captures.push((name.clone(), inner.into()));
                        true
                    }
                },
                None => false,
            }
        }
        Segment::One | Segment::Any => true,
    };
    fits_here && fits(later, rest, captures)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn renamed(from: &str, to: &str, name: &str) -> Option<String> {
        Pattern::new(from).matches(name).and_then(|captures| Pattern::new(to).expand(&captures))
    }

    #[test]
    fn captures_carry_over() {
        for (from, to, name, expected) in [
            ("wte.weight", "embed.weight", "wte.weight", Some("embed.weight")),
            ("h.{i}.{p}", "blocks.{i}.{p}", "h.12.ln", Some("blocks.12.ln")),
            (
                "layers.encoder_layer_{i}.ln.{p}",
                "blocks.{i}.{p}",
                "layers.encoder_layer_3.ln.bias",
                Some("blocks.3.bias"),
            ),
            ("layer{s}.{j}.conv1", "stages.{s}.{j}", "layer4.0.conv1", Some("stages.4.0")),
            ("{i}.x.{i}", "{i}", "7.x.7", Some("7")),
            ("{i}.x.{i}", "{i}", "7.x.8", None),
            ("h.{i}.ln", "{i}", "h.1.2.ln", None),
            ("h.{i}.ln", "{i}", "h..ln", None),
            ("h.{i}", "{other}", "h.1", None),
        ] {
            assert_eq!(renamed(from, to, name).as_deref(), expected, "{from} {name}");
        }
    }

    #[test]
    fn wildcards() {
        for (pattern, name, fits) in [
            ("**.inv_freq", "model.layers.0.rotary_emb.inv_freq", true),
            ("**.inv_freq", "inv_freq", true),
            ("h.*.attn.bias", "h.0.attn.bias", true),
            ("h.*.attn.bias", "h.0.1.attn.bias", false),
            ("pre_logits.**", "pre_logits.fc.weight", true),
            ("**", "", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name).is_some(), fits, "{pattern} {name}");
        }
    }
}
