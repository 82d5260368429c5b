"""Tables of a session's results, in Markdown."""

from session import table, time_text
from steps import COMPILED, EAGER, GROVE, PLAN, alike, passed

KINDS = ["operations", "layers", "models", "training"]


def machine(results: dict) -> str:
    found = results.get("machine")
    if not found:
        return ""
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    rows = [
        ["GPU", "; ".join(found["gpus"]) or "nvidia-smi lists none"],
        ["CUDA of the driver", found["cuda_of_driver"]],
        ["nvcc", found["nvcc"]],
        ["CPU", f"{found['cpu']}, {found['cores']} cores"],
        ["system", found["system"]],
        ["packages", ", ".join(packages) or None],
        ["grove", f"{results['pack']['commit']}, packed {results['pack']['packed']}"],
    ]
    return "## The machine\n\n" + table(["", ""], rows, left=2)


def steps(results: dict) -> str:
    rows = [[name, state["state"], state["seconds"], state["message"]] for name, state in results["steps"].items()]
    return "## Steps\n\n" + table(["step", "", "seconds", ""], rows, left=2)


def command(results: dict) -> str:
    found = results.get("command")
    if not found:
        return ""
    whole = len(found["flex"]["text"])
    rows = [
        [name, run["first_token_seconds"], run["seconds"], f"{run.get('same_characters', whole)} of {whole}"]
        for name, run in found.items()
    ]
    about = "`grove generate --backend cuda`: cold has no cache of kernels, warm is the next start.\n\n"
    return "## The first command\n\n" + about + table(["", "first token, s", "whole, s", "characters as flex's"], rows)


def parity(results: dict) -> str:
    found = results.get("parity")
    if not found:
        return ""
    rows, failures = [], []
    for kind in KINDS:
        for dtype in ["f32", "tf32", "f16", "bf16"]:
            part = found.get(f"{kind} {dtype}")
            if part is None:
                continue
            cases = part["cases"]
            failed = [case for case in cases if not passed(case)]
            good = [case for case in cases if case["distance"] is not None]
            worst = max(good, key=lambda case: case["distance"], default=None)
            rows.append(
                [
                    f"{kind}, {dtype}",
                    f"{worst['name']} ({worst['output']})" if worst else part["message"],
                    len(cases),
                    len(failed),
                    worst["distance"] if worst else None,
                    worst["largest"] if worst else None,
                    cases[0]["tolerance"] if cases else None,
                    part["seconds"],
                ]
            )
            if not part["whole"]:
                failures.append([f"{kind}, {dtype}", "(ended early)", "", part["message"]])
            failures += [[f"{kind}, {dtype}", case["name"], case["output"], case.get("error") or case["distance"]] for case in failed]
    headings = ["", "the worst", "cases", "failed", "distance", "largest difference", "tolerance", "seconds"]
    about = (
        "Distance: norm of the difference from flex in f32 over its norm, of the output where it is largest; largest difference over "
        "largest value of the same output. Weights and inputs are rounded to the dtype on both sides.\n\n"
    )
    text = "## Parity\n\n" + about + table(headings, rows, left=2)
    if failures:
        text += "\nFurther away than rounding explains:\n\n" + table(["", "case", "output", "distance or error"], failures[:120], left=3)
    return text


def programs(results: dict) -> str:
    found = results.get("programs")
    if not found:
        return ""
    rows = []
    for line, of in found.items():
        cuda, flex = (of.get(backend, {}) for backend in ["cuda", "flex"])
        value = lambda run: "a list" if isinstance(run.get("value"), list) else run.get("value")
        if len(of) < 2:
            state = "did not end in its time"
        else:
            state = "as on flex" if alike(of) else cuda["message"] or "NOT AS ON FLEX"
        rows.append([f"`grove {line}`", state, value(cuda), value(flex), cuda.get("seconds")])
    return "## Programs\n\n" + table(["", "", "cuda", "flex", "seconds"], rows, left=2)


def rows_table(results: dict, step: str, title: str, limits: dict) -> str:
    found = results.get("rows", {})
    names, dtypes = PLAN[step]
    levels = sorted({row["column"] for row in found.values() if row["column"].startswith(f"{GROVE}, ")} - {"grove, XLA"})
    columns = [GROVE, *levels, EAGER, COMPILED, "generate", "generate, static cache", "grove, XLA"]
    columns = [column for column in columns if any(row["column"] == column and row["row"] in names for row in found.values())]
    if not columns:
        return ""
    rows, errors = [], []
    for name in names:
        for dtype in dtypes:
            of = {column: found.get(f"{name}|{dtype}|{column}", {}) for column in columns}
            if not any(of.values()):
                continue
            median = {column: row.get("median") for column, row in of.items()}
            errors += [[f"{name}, {dtype}", column, row["error"]] for column, row in of.items() if "error" in row]
            grove = min((median[column] for column in [GROVE, *levels] if median.get(column)), default=None)
            torch = median.get(EAGER)
            ratio = torch / grove if grove and torch else None
            cost = results.get("costs", {}).get(name)
            roofline = share(cost, dtype, grove, limits) if grove and cost else None
            rows.append(
                [
                    name,
                    dtype,
                    *[time_text(median[column]) for column in columns],
                    ratio,
                    *([tokens(name, grove)] if step == "generate" else []),
                    time_text(of[GROVE].get("first")) if GROVE in of else None,
                    of.get(GROVE, {}).get("memory"),
                    of.get(EAGER, {}).get("memory"),
                    roofline,
                ]
            )
    headings = ["", "dtype", *columns, "grove is faster than PyTorch by", *(["grove, tokens/s"] if step == "generate" else [])]
    headings += ["first run", "memory, MiB", "PyTorch's", "of roofline"]
    text = f"## {title}\n\n" + table(headings, rows, left=2)
    if errors:
        text += "\n" + table(["", "", ""], errors, left=3)
    return text


def tokens(name: str, seconds: float | None) -> float | None:
    """Returns tokens per second of a row `MODEL, BATCH x NEW tokens after PROMPT`."""
    batch, new = name.split(", ")[1].split(" tokens")[0].split(" x ")
    return int(batch) * int(new) / seconds if seconds else None


def limits_of(results: dict) -> dict:
    """Returns the fastest matrix product of each dtype and the fastest pass over memory, of any program of the session."""
    found, costs = results.get("rows", {}), results.get("costs", {})
    limits: dict = {}
    for row in found.values():
        cost = costs.get(row["row"])
        if not cost or not row.get("median"):
            continue
        if row["row"].startswith("gemm 8192"):
            limits[row["dtype"]] = max(limits.get(row["dtype"], 0), cost["operations"] / row["median"])
        if row["row"].startswith("gelu 64M"):
            limits["bytes"] = max(limits.get("bytes", 0), bytes_of(cost, row["dtype"]) / row["median"])
    return limits


def bytes_of(cost: dict, dtype: str) -> float:
    """Converts costs, which count values of four bytes."""
    return cost["bytes"] * (0.5 if dtype == "bf16" else 1)


def share(cost: dict, dtype: str, seconds: float, limits: dict) -> str | None:
    if dtype not in limits or "bytes" not in limits:
        return None
    least = max(cost["operations"] / limits[dtype], bytes_of(cost, dtype) / limits["bytes"])
    return f"{100 * least / seconds:.0f} %"


def launches(results: dict) -> str:
    text = ""
    for key, entry in results.get("launches", {}).items():
        name, dtype, _ = key.split("|")
        median = results.get("rows", {}).get(key, {}).get("median")
        rows = [[k["kernel"], k["launches"], k["seconds"] * 1e6, 100 * k["seconds"] / max(entry["seconds"], 1e-9)] for k in entry["kernels"]]
        text += (
            f"## Launches: {name}, {dtype}\n\n{entry['launches']} launches, {entry['seconds'] * 1e3:.3g} ms in kernels by CubeCL's "
            f"profile; without the profile the run takes {time_text(median)}.\n\n" + table(["kernel", "launches", "µs", "%"], rows) + "\n"
        )
    return text


def all_tables(results: dict) -> str:
    limits = limits_of(results)
    titles = {
        "generate": "Generation: 128 tokens after 64, greedy",
        "train": "Training: a whole step with AdamW",
        "forward": "Forward passes",
        "roofline": "Operations",
    }
    parts = [machine(results), steps(results), command(results), parity(results), programs(results)]
    parts += [rows_table(results, step, title, limits) for step, title in titles.items()]
    told = [f"fastest product in {name}: {value / 1e12:.0f} TFLOP/s" for name, value in limits.items() if name != "bytes"]
    if "bytes" in limits:
        told.append(f"fastest pass over memory: {limits['bytes'] / 1e12:.2f} TB/s")
    parts += [f"{'; '.join(told)}.\n" if told else "", launches(results)]
    return "# grove on a GPU\n\n" + "\n".join(part for part in parts if part)
