//! End-to-end tests of the example `bench`: rows, figures and files of a run, peers of any kind, and error messages.

use std::fs;

use crate::common::{Example, Place, json_file};

const BENCH: Example = Example("bench");

#[test]
fn every_row_is_listed_with_what_it_costs() {
    let listed = BENCH.json(&["--dry-run", "--json"]);
    let rows = listed["rows"].as_array().expect("rows");
    for word in
        ["gemm 3000x3000x3000", "lstm", "gru", "resnet-50", "bert", "gpt2", "vit", "gpt-neo", "llama 8b", "adamw"]
    {
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.contains(word)));
        let row = row.unwrap_or_else(|| panic!("no row of {word}"));
        assert!(row["operations"].as_f64() > Some(1e3) && row["bytes"].as_f64() > Some(1e3), "{row}");
    }
}

#[test]
fn a_run_leaves_figures_tables_and_an_image() {
    let place = Place::new();
    let output = place.named("out");
    let only = ["--smoke", "--json", "--only", "gemm 128,packed,batch 4,start", "--output", &output];
    let results = BENCH.json(&only);
    assert_eq!(results, json_file(place.path("out/results.json")));
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let grove = &row["columns"][0];
        assert_eq!(grove["name"], "grove, flex");
        for figure in ["first_seconds", "second_seconds", "median_seconds"] {
            assert!(grove[figure].as_f64() > Some(0.0), "{figure} of {row}");
        }
        assert!(grove["start_seconds"].as_f64() >= grove["first_seconds"].as_f64(), "{row}");
        assert!(!cfg!(target_os = "linux") || grove["peak_bytes"].as_u64() > Some(1 << 20), "{row}");
    }
    let table = fs::read_to_string(place.path("out/results.md")).expect("a table");
    assert!(rows.iter().all(|row| table.contains(row["name"].as_str().expect("a name"))), "{table}");
    let image = fs::read_to_string(place.path("out/results.svg")).expect("an image");
    assert!(image.contains("prefers-color-scheme:dark"), "colours of dark pages");
    assert!(image.starts_with("<svg") && image.trim_end().ends_with("</svg>"));
}

/// A substitute for Python that implements only the protocol of peers.
#[cfg(unix)]
fn peer(place: &Place, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = place.write("peer.sh", format!("#!/bin/sh\nif [ \"$1\" = -c ]; then exit 0; fi\n{body}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    path
}

#[cfg(unix)]
#[test]
fn peers_take_turns_and_may_fail() {
    let place = Place::new();
    let output = place.named("out");
    let columns = |body: &str| {
        let python = peer(&place, body);
        let only = ["--json", "--only", "softmax", "--seconds", "0.02", "--rounds", "2", "--timeout", "10"];
        let results = BENCH.json(&[&only[..], &["--peers", "jax", "--python", &python, "--output", &output]].concat());
        results["rows"][0]["columns"].as_array().expect("columns").clone()
    };
    let good = r#"echo '{"event": "first", "seconds": 0.5, "setup_seconds": 0.1, "version": "P 1"}'
        echo '{"event": "second", "seconds": 0.25}'
        read question; echo '{"event": "times", "seconds": [0.125, 0.5]}'
        read question; echo '{"event": "times", "seconds": [0.0625]}'
        read question; echo '{"event": "end", "peak_bytes": 1048576, "device_peak_bytes": null}'"#;
    let both = columns(good);
    let jax = &both[1];
    assert_eq!((&jax["first_seconds"], &jax["median_seconds"], &jax["runs"]), (&0.5.into(), &0.125.into(), &3.into()));
    assert!(both[0]["median_seconds"].as_f64() > Some(0.0));

    let failures = [
        (r#"echo '{"event": "error", "kind": "out_of_memory", "message": "no room"}'"#, "out_of_memory", "no room"),
        ("echo 'Traceback'", "failed", "Traceback"),
        ("echo 'no such module' >&2; exit 3", "failed", "no such module"),
        ("kill -KILL $$", "out_of_memory", "9"),
    ];
    for (body, kind, message) in failures {
        let both = columns(body);
        assert_eq!(both[1]["error"], kind, "{body}");
        assert!(both[1]["message"].as_str().is_some_and(|text| text.contains(message)), "{}", both[1]);
        assert!(both[0]["median_seconds"].as_f64() > Some(0.0), "grove does not suffer");
    }
}

#[test]
fn bad_options_are_refused() {
    BENCH.assert_refused(&["--only", "warp drive"], 2, &["warp drive", "--dry-run"]);
    BENCH.assert_refused(&["--backend", "flux"], 2, &["flux", "flex"]);
    BENCH.assert_refused(&["--rounds", "0"], 2, &["--rounds"]);
    BENCH.assert_refused(&["--seconds", "nan"], 2, &["--seconds"]);
    BENCH.assert_refused(&["--dtype", "f16"], 2, &["--dtype"]);
    BENCH.assert_refused(&["--peers", "jax", "--python", "/no/such/python"], 2, &["/no/such/python"]);
    BENCH.assert_refused(
        &["--peers", "candle", "--candle", "/no/such/program"],
        2,
        &["/no/such/program", "cargo build"],
    );
    BENCH.assert_refused(&["--worker", "{"], 2, &["--worker"]);
}
