//! The part of the PJRT C API that grove uses. Written by tools/pjrt_sys.py from OpenXLA's header, API 0.81.

use std::ffi::{c_char, c_void};

/// The minor version of the header.
pub const MINOR: i32 = 81;

/// A struct of the API.
///
/// # Safety
/// It is `repr(C)`, begins with its size, and is valid if all its bytes are zero.
pub unsafe trait Struct: Copy {}

/// A struct that a function of the API takes and fills.
pub trait Args: Struct {
    /// Name of the function.
    const NAME: &'static str;
    /// Its place in the table.
    const INDEX: usize;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union NamedValueUnion {
    pub string: *const c_char,
    pub int: i64,
    pub ints: *const i64,
    pub float: f32,
    /// A plugin may write any byte.
    pub bool: u8,
}

/// The head of the table of functions, which follow it.
#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub version: ApiVersion,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ApiVersion {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub major_version: i32,
    pub minor_version: i32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ApiVersion {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ErrorDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub error: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ErrorDestroy {}

impl Args for ErrorDestroy {
    const NAME: &'static str = "PJRT_Error_Destroy";
    const INDEX: usize = 0;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ErrorMessage {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub error: *const c_void,
    pub message: *const c_char,
    pub message_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ErrorMessage {}

impl Args for ErrorMessage {
    const NAME: &'static str = "PJRT_Error_Message";
    const INDEX: usize = 1;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ErrorGetCode {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub error: *const c_void,
    pub code: u32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ErrorGetCode {}

impl Args for ErrorGetCode {
    const NAME: &'static str = "PJRT_Error_GetCode";
    const INDEX: usize = 2;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct NamedValue {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub name: *const c_char,
    pub name_size: usize,
    pub kind: u32,
    pub value: NamedValueUnion,
    pub value_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for NamedValue {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct PluginInitialize {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for PluginInitialize {}

impl Args for PluginInitialize {
    const NAME: &'static str = "PJRT_Plugin_Initialize";
    const INDEX: usize = 3;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct PluginAttributes {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub attributes: *const NamedValue,
    pub num_attributes: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for PluginAttributes {}

impl Args for PluginAttributes {
    const NAME: &'static str = "PJRT_Plugin_Attributes";
    const INDEX: usize = 4;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct EventDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub event: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for EventDestroy {}

impl Args for EventDestroy {
    const NAME: &'static str = "PJRT_Event_Destroy";
    const INDEX: usize = 5;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct EventAwait {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub event: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for EventAwait {}

impl Args for EventAwait {
    const NAME: &'static str = "PJRT_Event_Await";
    const INDEX: usize = 8;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct EventOnReady {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub event: *mut c_void,
    pub callback: *mut c_void,
    pub user_arg: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for EventOnReady {}

impl Args for EventOnReady {
    const NAME: &'static str = "PJRT_Event_OnReady";
    const INDEX: usize = 9;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct KeyValueGetCallback {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub key: *const c_char,
    pub key_size: usize,
    pub timeout_in_ms: i32,
    pub callback_error: *mut c_void,
    pub user_arg: *mut c_void,
    pub value: *mut c_char,
    pub value_size: usize,
    pub value_deleter_callback: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for KeyValueGetCallback {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct KeyValueTryGetCallback {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub key: *const c_char,
    pub key_size: usize,
    pub callback_error: *mut c_void,
    pub user_arg: *mut c_void,
    pub value: *mut c_char,
    pub value_size: usize,
    pub value_deleter_callback: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for KeyValueTryGetCallback {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct KeyValuePutCallback {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub key: *const c_char,
    pub key_size: usize,
    pub value: *const c_char,
    pub value_size: usize,
    pub callback_error: *mut c_void,
    pub user_arg: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for KeyValuePutCallback {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientCreate {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub create_options: *const NamedValue,
    pub num_options: usize,
    pub kv_get_callback: *mut c_void,
    pub kv_get_user_arg: *mut c_void,
    pub kv_put_callback: *mut c_void,
    pub kv_put_user_arg: *mut c_void,
    pub client: *mut c_void,
    pub kv_try_get_callback: *mut c_void,
    pub kv_try_get_user_arg: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientCreate {}

impl Args for ClientCreate {
    const NAME: &'static str = "PJRT_Client_Create";
    const INDEX: usize = 10;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientDestroy {}

impl Args for ClientDestroy {
    const NAME: &'static str = "PJRT_Client_Destroy";
    const INDEX: usize = 11;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientPlatformName {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub platform_name: *const c_char,
    pub platform_name_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientPlatformName {}

impl Args for ClientPlatformName {
    const NAME: &'static str = "PJRT_Client_PlatformName";
    const INDEX: usize = 12;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientProcessIndex {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub process_index: i32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientProcessIndex {}

impl Args for ClientProcessIndex {
    const NAME: &'static str = "PJRT_Client_ProcessIndex";
    const INDEX: usize = 13;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientPlatformVersion {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub platform_version: *const c_char,
    pub platform_version_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientPlatformVersion {}

impl Args for ClientPlatformVersion {
    const NAME: &'static str = "PJRT_Client_PlatformVersion";
    const INDEX: usize = 14;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientDevices {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub devices: *const *mut c_void,
    pub num_devices: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientDevices {}

impl Args for ClientDevices {
    const NAME: &'static str = "PJRT_Client_Devices";
    const INDEX: usize = 15;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientAddressableDevices {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub addressable_devices: *const *mut c_void,
    pub num_addressable_devices: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientAddressableDevices {}

impl Args for ClientAddressableDevices {
    const NAME: &'static str = "PJRT_Client_AddressableDevices";
    const INDEX: usize = 16;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Program {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub code: *mut c_char,
    pub code_size: usize,
    pub format: *const c_char,
    pub format_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for Program {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientCompile {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub program: *const Program,
    pub compile_options: *const c_char,
    pub compile_options_size: usize,
    pub executable: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientCompile {}

impl Args for ClientCompile {
    const NAME: &'static str = "PJRT_Client_Compile";
    const INDEX: usize = 20;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferMemoryLayoutTiled {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub minor_to_major: *const i64,
    pub minor_to_major_size: usize,
    pub tile_dims: *const i64,
    pub tile_dim_sizes: *const usize,
    pub num_tiles: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferMemoryLayoutTiled {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientBufferFromHostBuffer {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub data: *const c_void,
    pub kind: u32,
    pub dims: *const i64,
    pub num_dims: usize,
    pub byte_strides: *const i64,
    pub num_byte_strides: usize,
    pub host_buffer_semantics: u32,
    pub device: *mut c_void,
    pub memory: *mut c_void,
    pub device_layout: *mut c_void,
    pub done_with_host_buffer: *mut c_void,
    pub buffer: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ClientBufferFromHostBuffer {}

impl Args for ClientBufferFromHostBuffer {
    const NAME: &'static str = "PJRT_Client_BufferFromHostBuffer";
    const INDEX: usize = 22;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceDescriptionId {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device_description: *mut c_void,
    pub id: i32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceDescriptionId {}

impl Args for DeviceDescriptionId {
    const NAME: &'static str = "PJRT_DeviceDescription_Id";
    const INDEX: usize = 23;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceDescriptionProcessIndex {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device_description: *mut c_void,
    pub process_index: i32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceDescriptionProcessIndex {}

impl Args for DeviceDescriptionProcessIndex {
    const NAME: &'static str = "PJRT_DeviceDescription_ProcessIndex";
    const INDEX: usize = 24;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceDescriptionKind {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device_description: *mut c_void,
    pub device_kind: *const c_char,
    pub device_kind_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceDescriptionKind {}

impl Args for DeviceDescriptionKind {
    const NAME: &'static str = "PJRT_DeviceDescription_Kind";
    const INDEX: usize = 26;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceDescriptionToString {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device_description: *mut c_void,
    pub to_string: *const c_char,
    pub to_string_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceDescriptionToString {}

impl Args for DeviceDescriptionToString {
    const NAME: &'static str = "PJRT_DeviceDescription_ToString";
    const INDEX: usize = 28;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceGetDescription {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device: *mut c_void,
    pub device_description: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceGetDescription {}

impl Args for DeviceGetDescription {
    const NAME: &'static str = "PJRT_Device_GetDescription";
    const INDEX: usize = 29;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceMemoryStats {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub device: *mut c_void,
    pub bytes_in_use: i64,
    pub peak_bytes_in_use: i64,
    pub peak_bytes_in_use_is_set: bool,
    pub num_allocs: i64,
    pub num_allocs_is_set: bool,
    pub largest_alloc_size: i64,
    pub largest_alloc_size_is_set: bool,
    pub bytes_limit: i64,
    pub bytes_limit_is_set: bool,
    pub bytes_reserved: i64,
    pub bytes_reserved_is_set: bool,
    pub peak_bytes_reserved: i64,
    pub peak_bytes_reserved_is_set: bool,
    pub bytes_reservable_limit: i64,
    pub bytes_reservable_limit_is_set: bool,
    pub largest_free_block_bytes: i64,
    pub largest_free_block_bytes_is_set: bool,
    pub pool_bytes: i64,
    pub pool_bytes_is_set: bool,
    pub peak_pool_bytes: i64,
    pub peak_pool_bytes_is_set: bool,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for DeviceMemoryStats {}

impl Args for DeviceMemoryStats {
    const NAME: &'static str = "PJRT_Device_MemoryStats";
    const INDEX: usize = 34;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableDestroy {}

impl Args for ExecutableDestroy {
    const NAME: &'static str = "PJRT_Executable_Destroy";
    const INDEX: usize = 40;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct LoadedExecutableDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for LoadedExecutableDestroy {}

impl Args for LoadedExecutableDestroy {
    const NAME: &'static str = "PJRT_LoadedExecutable_Destroy";
    const INDEX: usize = 50;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct LoadedExecutableGetExecutable {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub loaded_executable: *mut c_void,
    pub executable: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for LoadedExecutableGetExecutable {}

impl Args for LoadedExecutableGetExecutable {
    const NAME: &'static str = "PJRT_LoadedExecutable_GetExecutable";
    const INDEX: usize = 51;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableOptimizedProgram {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub program: *mut Program,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableOptimizedProgram {}

impl Args for ExecutableOptimizedProgram {
    const NAME: &'static str = "PJRT_Executable_OptimizedProgram";
    const INDEX: usize = 48;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecuteOptions {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub send_callbacks: *mut *mut c_void,
    pub recv_callbacks: *mut *mut c_void,
    pub num_send_ops: usize,
    pub num_recv_ops: usize,
    pub launch_id: i32,
    pub non_donatable_input_indices: *const i64,
    pub num_non_donatable_input_indices: usize,
    pub context: *mut c_void,
    pub call_location: *const c_char,
    pub num_tasks: usize,
    pub task_ids: *mut i32,
    pub incarnation_ids: *mut i64,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecuteOptions {}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct LoadedExecutableExecute {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub options: *mut ExecuteOptions,
    pub argument_lists: *const *const *mut c_void,
    pub num_devices: usize,
    pub num_args: usize,
    pub output_lists: *const *mut *mut c_void,
    pub device_complete_events: *mut *mut c_void,
    pub execute_device: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for LoadedExecutableExecute {}

impl Args for LoadedExecutableExecute {
    const NAME: &'static str = "PJRT_LoadedExecutable_Execute";
    const INDEX: usize = 55;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableNumOutputs {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub num_outputs: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableNumOutputs {}

impl Args for ExecutableNumOutputs {
    const NAME: &'static str = "PJRT_Executable_NumOutputs";
    const INDEX: usize = 44;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableGetCostAnalysis {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub num_properties: usize,
    pub properties: *const NamedValue,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableGetCostAnalysis {}

impl Args for ExecutableGetCostAnalysis {
    const NAME: &'static str = "PJRT_Executable_GetCostAnalysis";
    const INDEX: usize = 46;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableGetCompiledMemoryStats {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub generated_code_size_in_bytes: i64,
    pub argument_size_in_bytes: i64,
    pub output_size_in_bytes: i64,
    pub alias_size_in_bytes: i64,
    pub temp_size_in_bytes: i64,
    pub host_generated_code_size_in_bytes: i64,
    pub host_argument_size_in_bytes: i64,
    pub host_output_size_in_bytes: i64,
    pub host_alias_size_in_bytes: i64,
    pub host_temp_size_in_bytes: i64,
    pub peak_memory_in_bytes: i64,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableGetCompiledMemoryStats {}

impl Args for ExecutableGetCompiledMemoryStats {
    const NAME: &'static str = "PJRT_Executable_GetCompiledMemoryStats";
    const INDEX: usize = 96;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableOutputElementTypes {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub output_types: *mut c_void,
    pub num_output_types: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableOutputElementTypes {}

impl Args for ExecutableOutputElementTypes {
    const NAME: &'static str = "PJRT_Executable_OutputElementTypes";
    const INDEX: usize = 90;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableOutputDimensions {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *mut c_void,
    pub num_outputs: usize,
    pub dims: *const i64,
    pub dim_sizes: *const usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableOutputDimensions {}

impl Args for ExecutableOutputDimensions {
    const NAME: &'static str = "PJRT_Executable_OutputDimensions";
    const INDEX: usize = 91;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableSerialize {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub executable: *const c_void,
    pub serialized_bytes: *const c_char,
    pub serialized_bytes_size: usize,
    pub serialized_executable: *mut c_void,
    pub serialized_executable_deleter: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableSerialize {}

impl Args for ExecutableSerialize {
    const NAME: &'static str = "PJRT_Executable_Serialize";
    const INDEX: usize = 49;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExecutableDeserializeAndLoad {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub client: *mut c_void,
    pub serialized_executable: *const c_char,
    pub serialized_executable_size: usize,
    pub loaded_executable: *mut c_void,
    pub overridden_serialized_compile_options: *const c_char,
    pub overridden_serialized_compile_options_size: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for ExecutableDeserializeAndLoad {}

impl Args for ExecutableDeserializeAndLoad {
    const NAME: &'static str = "PJRT_Executable_DeserializeAndLoad";
    const INDEX: usize = 56;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferDestroy {}

impl Args for BufferDestroy {
    const NAME: &'static str = "PJRT_Buffer_Destroy";
    const INDEX: usize = 58;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferElementType {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub kind: u32,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferElementType {}

impl Args for BufferElementType {
    const NAME: &'static str = "PJRT_Buffer_ElementType";
    const INDEX: usize = 59;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferDimensions {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub dims: *const i64,
    pub num_dims: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferDimensions {}

impl Args for BufferDimensions {
    const NAME: &'static str = "PJRT_Buffer_Dimensions";
    const INDEX: usize = 60;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferToHostBuffer {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub src: *mut c_void,
    pub host_layout: *mut c_void,
    pub dst: *mut c_void,
    pub dst_size: usize,
    pub event: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferToHostBuffer {}

impl Args for BufferToHostBuffer {
    const NAME: &'static str = "PJRT_Buffer_ToHostBuffer";
    const INDEX: usize = 70;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferOnDeviceSizeInBytes {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub on_device_size_in_bytes: usize,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferOnDeviceSizeInBytes {}

impl Args for BufferOnDeviceSizeInBytes {
    const NAME: &'static str = "PJRT_Buffer_OnDeviceSizeInBytes";
    const INDEX: usize = 64;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferDelete {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferDelete {}

impl Args for BufferDelete {
    const NAME: &'static str = "PJRT_Buffer_Delete";
    const INDEX: usize = 67;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferIsDeleted {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub is_deleted: bool,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferIsDeleted {}

impl Args for BufferIsDeleted {
    const NAME: &'static str = "PJRT_Buffer_IsDeleted";
    const INDEX: usize = 68;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferCopyToDevice {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub dst_device: *mut c_void,
    pub dst_buffer: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferCopyToDevice {}

impl Args for BufferCopyToDevice {
    const NAME: &'static str = "PJRT_Buffer_CopyToDevice";
    const INDEX: usize = 69;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferDevice {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub device: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferDevice {}

impl Args for BufferDevice {
    const NAME: &'static str = "PJRT_Buffer_Device";
    const INDEX: usize = 65;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferReadyEvent {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub buffer: *mut c_void,
    pub event: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for BufferReadyEvent {}

impl Args for BufferReadyEvent {
    const NAME: &'static str = "PJRT_Buffer_ReadyEvent";
    const INDEX: usize = 72;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct TopologyDescriptionCreate {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub topology_name: *const c_char,
    pub topology_name_size: usize,
    pub create_options: *const NamedValue,
    pub num_options: usize,
    pub topology: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for TopologyDescriptionCreate {}

impl Args for TopologyDescriptionCreate {
    const NAME: &'static str = "PJRT_TopologyDescription_Create";
    const INDEX: usize = 82;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct TopologyDescriptionDestroy {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub topology: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for TopologyDescriptionDestroy {}

impl Args for TopologyDescriptionDestroy {
    const NAME: &'static str = "PJRT_TopologyDescription_Destroy";
    const INDEX: usize = 83;
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Compile {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub topology: *const c_void,
    pub program: *const Program,
    pub compile_options: *const c_char,
    pub compile_options_size: usize,
    pub client: *mut c_void,
    pub executable: *mut c_void,
}

// SAFETY: of the header, with pointers, numbers and booleans only.
unsafe impl Struct for Compile {}

impl Args for Compile {
    const NAME: &'static str = "PJRT_Compile";
    const INDEX: usize = 89;
}

/// `tiled` is the larger member of a union.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BufferMemoryLayout {
    pub struct_size: usize,
    pub extension_start: *mut c_void,
    pub tiled: BufferMemoryLayoutTiled,
    pub kind: u32,
}

// SAFETY: as above.
unsafe impl Struct for BufferMemoryLayout {}

pub mod error_code {
    pub const OK: u32 = 0;
    pub const CANCELLED: u32 = 1;
    pub const UNKNOWN: u32 = 2;
    pub const INVALID_ARGUMENT: u32 = 3;
    pub const DEADLINE_EXCEEDED: u32 = 4;
    pub const NOT_FOUND: u32 = 5;
    pub const ALREADY_EXISTS: u32 = 6;
    pub const PERMISSION_DENIED: u32 = 7;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const FAILED_PRECONDITION: u32 = 9;
    pub const ABORTED: u32 = 10;
    pub const OUT_OF_RANGE: u32 = 11;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const INTERNAL: u32 = 13;
    pub const UNAVAILABLE: u32 = 14;
    pub const DATA_LOSS: u32 = 15;
    pub const UNAUTHENTICATED: u32 = 16;
}

pub mod extension_type {
    pub const GPU_CUSTOM_CALL: u32 = 0;
    pub const PROFILER: u32 = 1;
    pub const CUSTOM_PARTITIONER: u32 = 2;
    pub const STREAM: u32 = 3;
    pub const LAYOUTS: u32 = 4;
    pub const FFI: u32 = 5;
    pub const MEMORY_DESCRIPTIONS: u32 = 6;
    pub const TRITON: u32 = 7;
    pub const RAW_BUFFER: u32 = 8;
    pub const PHASE_COMPILE: u32 = 9;
    pub const EXAMPLE: u32 = 10;
    pub const UNKNOWN: u32 = 11;
    pub const CROSS_HOST_TRANSFERS: u32 = 12;
    pub const EXECUTABLE_METADATA: u32 = 13;
    pub const CALLBACK: u32 = 14;
    pub const HOST_ALLOCATOR: u32 = 15;
}

pub mod buffer_type {
    pub const INVALID: u32 = 0;
    pub const PRED: u32 = 1;
    pub const S8: u32 = 2;
    pub const S16: u32 = 3;
    pub const S32: u32 = 4;
    pub const S64: u32 = 5;
    pub const U8: u32 = 6;
    pub const U16: u32 = 7;
    pub const U32: u32 = 8;
    pub const U64: u32 = 9;
    pub const F16: u32 = 10;
    pub const F32: u32 = 11;
    pub const F64: u32 = 12;
    pub const BF16: u32 = 13;
    pub const C64: u32 = 14;
    pub const C128: u32 = 15;
    pub const F8_E5_M2: u32 = 16;
    pub const F8_E4_M3_FN: u32 = 17;
    pub const F8_E4_M3_B11_FNUZ: u32 = 18;
    pub const F8_E5_M2_FNUZ: u32 = 19;
    pub const F8_E4_M3_FNUZ: u32 = 20;
    pub const S4: u32 = 21;
    pub const U4: u32 = 22;
    pub const TOKEN: u32 = 23;
    pub const S2: u32 = 24;
    pub const U2: u32 = 25;
    pub const F8_E4_M3: u32 = 26;
    pub const F8_E3_M4: u32 = 27;
    pub const F8_E8_M0_FNU: u32 = 28;
    pub const F4_E2_M1_FN: u32 = 29;
}

pub mod named_value_type {
    pub const STRING: u32 = 0;
    pub const INT64: u32 = 1;
    pub const INT64_LIST: u32 = 2;
    pub const FLOAT: u32 = 3;
    pub const BOOL: u32 = 4;
}

pub mod host_buffer_semantics {
    pub const IMMUTABLE_ONLY_DURING_CALL: u32 = 0;
    pub const IMMUTABLE_UNTIL_TRANSFER_COMPLETES: u32 = 1;
    pub const IMMUTABLE_ZERO_COPY: u32 = 2;
    pub const MUTABLE_ZERO_COPY: u32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes by a C compiler that reads the header.
    #[test]
    fn sizes_match_c() {
        assert_eq!(size_of::<ApiVersion>(), 24);
        assert_eq!(size_of::<ErrorDestroy>(), 24);
        assert_eq!(size_of::<ErrorMessage>(), 40);
        assert_eq!(size_of::<ErrorGetCode>(), 32);
        assert_eq!(size_of::<NamedValue>(), 56);
        assert_eq!(size_of::<PluginInitialize>(), 16);
        assert_eq!(size_of::<PluginAttributes>(), 32);
        assert_eq!(size_of::<EventDestroy>(), 24);
        assert_eq!(size_of::<EventAwait>(), 24);
        assert_eq!(size_of::<EventOnReady>(), 40);
        assert_eq!(size_of::<KeyValueGetCallback>(), 80);
        assert_eq!(size_of::<KeyValueTryGetCallback>(), 72);
        assert_eq!(size_of::<KeyValuePutCallback>(), 64);
        assert_eq!(size_of::<ClientCreate>(), 88);
        assert_eq!(size_of::<ClientDestroy>(), 24);
        assert_eq!(size_of::<ClientPlatformName>(), 40);
        assert_eq!(size_of::<ClientProcessIndex>(), 32);
        assert_eq!(size_of::<ClientPlatformVersion>(), 40);
        assert_eq!(size_of::<ClientDevices>(), 40);
        assert_eq!(size_of::<ClientAddressableDevices>(), 40);
        assert_eq!(size_of::<Program>(), 48);
        assert_eq!(size_of::<ClientCompile>(), 56);
        assert_eq!(size_of::<BufferMemoryLayoutTiled>(), 56);
        assert_eq!(size_of::<BufferMemoryLayout>(), 80);
        assert_eq!(size_of::<ClientBufferFromHostBuffer>(), 120);
        assert_eq!(size_of::<DeviceDescriptionId>(), 32);
        assert_eq!(size_of::<DeviceDescriptionProcessIndex>(), 32);
        assert_eq!(size_of::<DeviceDescriptionKind>(), 40);
        assert_eq!(size_of::<DeviceDescriptionToString>(), 40);
        assert_eq!(size_of::<DeviceGetDescription>(), 32);
        assert_eq!(size_of::<DeviceMemoryStats>(), 192);
        assert_eq!(size_of::<ExecutableDestroy>(), 24);
        assert_eq!(size_of::<LoadedExecutableDestroy>(), 24);
        assert_eq!(size_of::<LoadedExecutableGetExecutable>(), 32);
        assert_eq!(size_of::<ExecutableOptimizedProgram>(), 32);
        assert_eq!(size_of::<ExecuteOptions>(), 112);
        assert_eq!(size_of::<LoadedExecutableExecute>(), 80);
        assert_eq!(size_of::<ExecutableNumOutputs>(), 32);
        assert_eq!(size_of::<ExecutableGetCostAnalysis>(), 40);
        assert_eq!(size_of::<ExecutableGetCompiledMemoryStats>(), 112);
        assert_eq!(size_of::<ExecutableOutputElementTypes>(), 40);
        assert_eq!(size_of::<ExecutableOutputDimensions>(), 48);
        assert_eq!(size_of::<ExecutableSerialize>(), 56);
        assert_eq!(size_of::<ExecutableDeserializeAndLoad>(), 64);
        assert_eq!(size_of::<BufferDestroy>(), 24);
        assert_eq!(size_of::<BufferElementType>(), 32);
        assert_eq!(size_of::<BufferDimensions>(), 40);
        assert_eq!(size_of::<BufferToHostBuffer>(), 56);
        assert_eq!(size_of::<BufferOnDeviceSizeInBytes>(), 32);
        assert_eq!(size_of::<BufferDelete>(), 24);
        assert_eq!(size_of::<BufferIsDeleted>(), 32);
        assert_eq!(size_of::<BufferCopyToDevice>(), 40);
        assert_eq!(size_of::<BufferDevice>(), 32);
        assert_eq!(size_of::<BufferReadyEvent>(), 32);
        assert_eq!(size_of::<TopologyDescriptionCreate>(), 56);
        assert_eq!(size_of::<TopologyDescriptionDestroy>(), 24);
        assert_eq!(size_of::<Compile>(), 64);
    }
}
