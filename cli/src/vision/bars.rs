//! Probabilities as bars.

use grove::models::vision::Prediction;

/// Eighths of a character cell.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Cells of a bar that stands for 1.
const WIDTH: f32 = 30.0;

/// A line for each prediction: how likely, which class.
pub fn bars(predictions: &[Prediction]) -> String {
    let line = |prediction: &Prediction| {
        let eighths = (prediction.probability * WIDTH * 8.0).round().max(0.0) as usize;
        let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
        format!("{:5.1} %  {bar:<width$}  {}", 100.0 * prediction.probability, prediction.label, width = WIDTH as usize)
    };
    predictions.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shares() {
        let prediction = |probability| Prediction { class: 0, label: "owl".into(), probability };
        let lines = bars(&[prediction(1.0), prediction(0.5), prediction(0.01)]);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0].matches('█').count(), 30);
        assert_eq!(lines[1].matches('█').count(), 15);
        assert_eq!(lines[2].matches(['█', '▎']).count(), 1);
        assert!(lines[2].starts_with("  1.0 %") && lines[2].ends_with("  owl"));
    }
}
