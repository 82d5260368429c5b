//! Tables in Markdown.

use std::fmt::{self, Write};

use crate::{
    protocol::ErrorKind,
    results::{ColumnResult, Machine, Outcome, Results, RowResult},
};

/// Formats a time with a readable unit.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "–".to_owned(),
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.01 => format!("{:.1} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "–".to_owned(), |bytes| format!("{:.0}", bytes as f64 / (1 << 20) as f64))
}

/// Returns both tables with a description of the machine and the versions.
pub fn report(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let Machine { gpu, cpu, threads, memory_bytes, system, bytes_per_second, operations_per_second } = &results.machine;
    writeln!(out, "`{}`\n", results.command)?;
    let precision = results.precision.map(|precision| format!(", precision {}", precision.name()));
    writeln!(
        out,
        "{}; {}{cpu}, {threads} threads, {:.0} GiB; {system}; {}; {}{}. The memory of the CPU gives {:.1} GB/s, the fastest \
         product of the run {:.0} GFLOP/s.\n",
        results.date,
        gpu.as_ref().map_or_else(String::new, |gpu| format!("{gpu}; ")),
        *memory_bytes as f64 / (1u64 << 30) as f64,
        versions(results).join(", "),
        results.dtype,
        precision.unwrap_or_default(),
        bytes_per_second / 1e9,
        operations_per_second / 1e9,
    )?;
    summary(&mut out, results)?;
    writeln!(out, "\n## Every program\n")?;
    details(&mut out, results)?;
    Ok(out)
}

/// Returns the versions of the measured programs, without duplicates.
fn versions(results: &Results) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for measured in results.rows.iter().flat_map(|row| &row.columns).filter_map(ColumnResult::measured) {
        if !versions.contains(&measured.version) {
            versions.push(measured.version.clone());
        }
    }
    versions
}

/// Returns the rows of each group with its heading.
fn groups(results: &Results) -> impl Iterator<Item = (&'static str, &[RowResult])> {
    results.rows.chunk_by(|a, b| a.group == b.group).map(|rows| (rows[0].group.title(), rows))
}

/// Writes the table of grove against the fastest peer, one line per row.
pub fn summary(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(
        out,
        "| | grove | fastest peer | | grove is faster by | memory, MiB | least of the peers | of roofline |"
    )?;
    writeln!(out, "|---|---:|---:|---|---:|---:|---:|---:|")?;
    for (title, rows) in groups(results) {
        writeln!(out, "| **{title}** | | | | | | | |")?;
        for row in rows {
            let grove = row.grove();
            let measured = grove.and_then(ColumnResult::measured);
            let peer = row.fastest_peer();
            let own = match (measured, grove) {
                (Some(measured), _) => time(measured.median_seconds),
                (None, Some(column)) => nothing(column),
                (None, None) => String::new(),
            };
            let ratio = measured.zip(peer).map(|(own, (_, peer))| peer.median_seconds / own.median_seconds);
            writeln!(
                out,
                "| {} | {own} | {} | {} | {} | {} | {} | {} |",
                row.name,
                peer.map_or_else(|| "–".to_owned(), |(_, peer)| time(peer.median_seconds)),
                peer.map_or("", |(column, _)| &column.name),
                ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
                mebibytes(grove.and_then(ColumnResult::memory)),
                mebibytes(row.least_memory()),
                grove.map_or_else(String::new, |column| roofline(row, column, &results.machine)),
            )?;
        }
    }
    Ok(())
}

/// Formats the fraction of the roofline, which is unknown for a GPU: its memory bandwidth is not measured.
fn roofline(row: &RowResult, column: &ColumnResult, machine: &Machine) -> String {
    match column.measured() {
        Some(measured) if !column.on_gpu => {
            format!("{:.0} %", 100.0 * row.of_roofline(measured.median_seconds, machine))
        }
        _ => "–".to_owned(),
    }
}

/// Writes the table of all measurements of all programs.
fn details(out: &mut String, results: &Results) -> fmt::Result {
    writeln!(
        out,
        "| | | start to first result | first run | second run | steady: median | quartiles | runs | memory, MiB | of roofline |"
    )?;
    writeln!(out, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for row in &results.rows {
        for column in &row.columns {
            let Some(measured) = column.measured() else {
                writeln!(out, "| {} | {} | {} | | | | | | | |", row.name, column.name, nothing(column))?;
                continue;
            };
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} to {} | {} | {} | {} |",
                row.name,
                column.name,
                time(measured.start_seconds),
                time(measured.first_seconds),
                time(measured.second_seconds),
                time(measured.median_seconds),
                time(measured.lower_quartile_seconds),
                time(measured.upper_quartile_seconds),
                measured.runs,
                mebibytes(column.memory()),
                roofline(row, column, &results.machine),
            )?;
        }
    }
    Ok(())
}

/// Formats the reason why there is no measurement.
fn nothing(column: &ColumnResult) -> String {
    match &column.outcome {
        Outcome::Measured(_) => String::new(),
        Outcome::Nothing { error: ErrorKind::OutOfMemory, .. } => "out of memory".to_owned(),
        Outcome::Nothing { error: ErrorKind::Unsupported, .. } => "not there".to_owned(),
        Outcome::Nothing { error: ErrorKind::Failed, message } => {
            format!("failed: {}", message.replace(['|', '\n'], " ").chars().take(80).collect::<String>())
        }
    }
}
