#!/usr/bin/env python3
"""Writes engine/xla/src/sys.rs, the part of the PJRT C API that grove uses, from OpenXLA's header.

    tools/pjrt_sys.py pjrt_c_api.h > engine/xla/src/sys.rs && cargo fmt -p grove-xla

The header is in the PyPI package xla-cpu-pjrt. Later versions of the header only append functions and fields.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FUNCTIONS = """
Error_Destroy Error_Message Error_GetCode
Plugin_Initialize Plugin_Attributes
Event_Destroy Event_Await Event_OnReady
Client_Create Client_Destroy Client_PlatformName Client_PlatformVersion Client_ProcessIndex Client_Devices
Client_AddressableDevices Client_Compile Client_BufferFromHostBuffer
Device_GetDescription Device_MemoryStats DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Kind
DeviceDescription_ToString
Executable_Destroy Executable_NumOutputs Executable_OutputElementTypes Executable_OutputDimensions Executable_Serialize
Executable_DeserializeAndLoad Executable_GetCompiledMemoryStats Executable_GetCostAnalysis Executable_OptimizedProgram
LoadedExecutable_GetExecutable LoadedExecutable_Destroy LoadedExecutable_Execute
Buffer_Destroy Buffer_ElementType Buffer_Dimensions Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Delete Buffer_IsDeleted
Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_ReadyEvent
TopologyDescription_Create TopologyDescription_Destroy Compile
""".split()
STRUCTS = ["PJRT_Api_Version", "PJRT_NamedValue", "PJRT_Program", "PJRT_ExecuteOptions", "PJRT_Buffer_MemoryLayout_Tiled"]
CALLBACKS = [f"PJRT_KeyValue{name}Callback_Args" for name in ["Get", "TryGet", "Put"]]
CONSTANTS = ["PJRT_Error_Code", "PJRT_Extension_Type", "PJRT_Buffer_Type", "PJRT_NamedValue_Type", "PJRT_HostBufferSemantics"]
PRIMITIVES = dict(
    char="c_char", int="i32", size_t="usize", bool="bool", float="f32", int64_t="i64", int32_t="i32", uint8_t="u8"
)


def camel(name: str) -> str:
    return name.removeprefix("PJRT_").removesuffix("_Args").replace("_", "")


def rust_type(text: str, structs: set[str]) -> str:
    """Converts a C type. Pointers to functions and to types that are not converted become untyped pointers."""
    tokens = re.findall(r"\w+|\*", text.replace("struct ", ""))
    base = next(token for token in tokens if token not in ["const", "*"])
    if base in PRIMITIVES:
        found = PRIMITIVES[base]
    elif base in structs:
        found = camel(base)
    else:
        found = "c_void" if "*" in tokens else "u32"
    const = False
    for token in tokens:
        if token == "const":
            const = True
        elif token == "*":
            found, const = f"*{'const' if const else 'mut'} {found}", False
    return found


def fields(body: str, structs: set[str]) -> list[tuple[str, str]]:
    body = re.sub(r"union \{.*?\};", "NamedValueUnion value;", body, flags=re.S)
    found = []
    for field in filter(None, (" ".join(part.split()) for part in body.split(";"))):
        if pointer := re.search(r"\(\*(\w+)\)", field):
            found.append((pointer[1], "*mut c_void"))
            continue
        kind, name = re.match(r"(.*?[\s*])(\w+)$", field).groups()
        kind = "NamedValueUnion" if "NamedValueUnion" in kind else rust_type(kind, structs)
        if kind == "u32" and "Callback" in field:
            kind = "*mut c_void"
        found.append(("kind" if name == "type" else name, kind))
    return found


def main() -> None:
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", Path(sys.argv[1]).read_text(), flags=re.S)
    bodies = {m[1]: m[2] for m in re.finditer(r"struct (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}", source)}
    table = re.findall(r"_PJRT_API_STRUCT_FIELD\((\w+)\);", bodies["PJRT_Api"])
    minor = re.search(r"#define PJRT_API_MINOR (\d+)", source)[1]
    structs = {*STRUCTS, *CALLBACKS, *(f"PJRT_{name}_Args" for name in FUNCTIONS)}
    print(f"//! The part of the PJRT C API that grove uses. Written by tools/pjrt_sys.py from OpenXLA's header, API 0.{minor}.\n")
    print("use std::ffi::{c_char, c_void};\n")
    print("/// The minor version of the header.\npub const MINOR: i32 =", minor + ";\n")
    print("/// A struct of the API.\n///\n/// # Safety")
    print("/// It is `repr(C)`, begins with its size, and is valid if all its bytes are zero.\npub unsafe trait Struct: Copy {}\n")
    print("/// A struct that a function of the API takes and fills.")
    print("pub trait Args: Struct {\n    /// Name of the function.\n    const NAME: &'static str;")
    print("    /// Its place in the table.\n    const INDEX: usize;\n}\n")
    print("#[derive(Clone, Copy)]\n#[repr(C)]\npub union NamedValueUnion {\n    pub string: *const c_char,\n    pub int: i64,")
    print("    pub ints: *const i64,\n    pub float: f32,\n    /// A plugin may write any byte.\n    pub bool: u8,\n}\n")
    print("/// The head of the table of functions, which follow it.\n#[repr(C)]\npub struct Api {\n    pub struct_size: usize,")
    print("    pub extension_start: *mut c_void,\n    pub version: ApiVersion,\n}\n")
    for name, body in bodies.items():
        if name not in structs:
            continue
        print(f"#[derive(Clone, Copy)]\n#[repr(C)]\npub struct {camel(name)} {{")
        for field, kind in fields(body, structs):
            print(f"    pub {field}: {kind},")
        print("}\n")
        function = name.removesuffix("_Args")
        print(f"// SAFETY: of the header, with pointers, numbers and booleans only.\nunsafe impl Struct for {camel(name)} {{}}\n")
        if name.endswith("_Args") and name not in CALLBACKS:
            print(f"impl Args for {camel(name)} {{\n    const NAME: &'static str = \"{function}\";")
            print(f"    const INDEX: usize = {table.index(function)};\n}}\n")
    print("/// `tiled` is the larger member of a union.\n#[derive(Clone, Copy)]\n#[repr(C)]\npub struct BufferMemoryLayout {")
    print("    pub struct_size: usize,\n    pub extension_start: *mut c_void,\n    pub tiled: BufferMemoryLayoutTiled,\n    pub kind: u32,\n}\n")
    print("// SAFETY: as above.\nunsafe impl Struct for BufferMemoryLayout {}\n")
    for enum in CONSTANTS:
        members = re.search(r"typedef enum \{([^}]*)\} " + enum + ";", source)[1]
        value = 0
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", camel(enum)).lower()
        print(f"pub mod {module} {{")
        for member in filter(None, (part.strip() for part in members.split(","))):
            name, _, given = member.partition("=")
            value = int(given) if given.strip() else value
            short = name.strip().removeprefix(enum + "_").removeprefix("PJRT_NamedValue_").removeprefix("k")
            short = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).upper()
            print(f"    pub const {short}: u32 = {value};")
            value += 1
        print("}\n")
    print("#[cfg(test)]\nmod tests {\n    use super::*;\n")
    print("    /// Sizes by a C compiler that reads the header.\n    #[test]\n    fn sizes_match_c() {")
    for name, size in sizes([name for name in bodies if name in structs or name == "PJRT_Buffer_MemoryLayout"]):
        print(f"        assert_eq!(size_of::<{camel(name)}>(), {size});")
    print("    }\n}")


def sizes(structs: list[str]) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "sizes.c"
        lines = "".join(f'printf("{name} %zu\\n", sizeof({name}));\n' for name in structs)
        header = Path(sys.argv[1]).resolve()
        program.write_text(f'#include <stdio.h>\n#include "{header}"\nint main(void) {{ {lines} return 0; }}\n')
        subprocess.run(["cc", program, "-o", program.with_suffix("")], check=True)
        found = subprocess.run([program.with_suffix("")], check=True, capture_output=True, text=True).stdout
    return [tuple(line.split()) for line in found.splitlines()]


if __name__ == "__main__":
    main()
