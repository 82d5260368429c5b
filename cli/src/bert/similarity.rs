//! Texts of similar meaning.

use serde_json::{Value, json};

use crate::{Exit, write_line};

/// Texts by their nearness to a query, the nearest first: the cosines of the vectors' angles.
pub struct Ranking {
    /// Number of the text, and its cosine.
    pub order: Vec<(usize, f32)>,
}

impl Ranking {
    pub fn new(query: &[f32], vectors: &[Vec<f32>]) -> Self {
        let mut order: Vec<(usize, f32)> =
            vectors.iter().enumerate().map(|(i, vector)| (i, cosine(query, vector))).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self { order }
    }

    pub fn json(&self, query: &str, texts: &[String]) -> Value {
        let ranked: Vec<Value> =
            self.order.iter().map(|&(i, score)| json!({ "index": i, "text": texts[i], "score": score })).collect();
        json!({ "query": query, "similar": ranked })
    }

    pub fn print(&self, query: &str, texts: &[String]) -> Result<(), Exit> {
        write_line(query)?;
        for &(i, score) in &self.order {
            write_line(&format!("  {score:6.3}  {}", texts[i]))?;
        }
        Ok(())
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}
