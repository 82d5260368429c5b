// A libnvrtc.so that compiles kernels for the CPU with g++, stores them uncompiled, or forwards to the real library.
//
// Environment variables (set by the script `emulate`):
//   GROVE_CUDA_KERNELS   `run`, `count`, or the path of a real libnvrtc.so.12 or .13
//   GROVE_CUDA_EMULATOR  folder for compiled kernels, with include/
//   GROVE_CUDA_SOURCES   folder for the source of each kernel and the messages of the compiler
//   GROVE_CUDA_NVRTC     the version that this library reports, times a hundred (the real one's, or 1208)

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace {
enum Status { SUCCESS = 0, COMPILATION = 6, INTERNAL_ERROR = 11 };

struct Program {
    std::string source, code, log;
    // Handle of the real compiler.
    void *real = nullptr;
};

std::string setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

uint64_t hash(const std::string &text) {
    uint64_t hash = 14695981039346656037u;
    for (const unsigned char byte : text) hash = (hash ^ byte) * 1099511628211u;
    return hash;
}

std::string hexadecimal(uint64_t number) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
    return text;
}

std::string read(const std::string &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool exists(const std::string &path) { return access(path.c_str(), R_OK) == 0; }

// Returns the name of the only kernel of a source.
std::string kernel_name(const std::string &source) {
    const size_t kernel = source.find("extern \"C\" __global__");
    const size_t end = kernel == std::string::npos ? kernel : source.find(" (", kernel);
    if (end == std::string::npos) return "";
    const size_t begin = source.find_last_of(" )", end - 1) + 1;
    return source.substr(begin, end - begin);
}

// Compiles to a shared library, unless it is cached.
Status compile(Program &program) {
    const std::string name = kernel_name(program.source);
    if (name.empty()) {
        program.log = "the source has no kernel";
        return COMPILATION;
    }
    const auto has = [&](const char *word) { return program.source.find(word) != std::string::npos; };
    const bool waits = has("__syncthreads") || has("_sync(") || has("__syncwarp");
    const std::string source = program.source + "\nextern \"C\" void emulated_entry(void **arguments) { emulated_call(" + name +
                               ", arguments); }\nextern \"C\" const bool emulated_waits = " + (waits ? "true" : "false") + ";\n";
    const std::string folder = setting("GROVE_CUDA_EMULATOR"), path = folder + "/kernels/" + hexadecimal(hash(source));
    const std::string library = path + ".so";
    if (!exists(library)) {
        // Concurrent programs and threads may compile the same kernel.
        static std::atomic<int> count{0};
        const std::string own = path + "." + std::to_string(getpid()) + "." + std::to_string(count++);
        std::ofstream(own + ".cpp") << source;
        const std::string command = "g++ -std=c++17 -O2 -w -fno-strict-aliasing -ffp-contract=fast -march=native -fPIC -shared "
                                    "-I'" + folder + "/include' -o '" + own + ".so' '" + own + ".cpp' '" + folder +
                                    "/lib/libcuda.so.1' 2>'" + own + ".log'";
        const bool compiled = system(command.c_str()) == 0;
        program.log = read(own + ".log");
        remove((own + ".log").c_str());
        if (!compiled) {
            fprintf(stderr, "emulated CUDA: g++ does not take kernel %s, %s.cpp\n", name.c_str(), own.c_str());
            return COMPILATION;
        }
        remove((own + ".cpp").c_str());
        if (rename((own + ".so").c_str(), library.c_str()) != 0) return INTERNAL_ERROR;
    }
    program.code = "run " + library;
    return SUCCESS;
}

template <class F> F real(const char *name) {
    static void *const library = dlopen(setting("GROVE_CUDA_KERNELS").c_str(), RTLD_NOW);
    if (!library) {
        fprintf(stderr, "emulated CUDA: %s\n", dlerror());
        abort();
    }
    return reinterpret_cast<F>(dlsym(library, name));
}

// Compiles with the real compiler, and saves its output.
Status compile_really(Program &program, int count, const char *const *options) {
    using Create = Status (*)(void **, const char *, const char *, int, const char *const *, const char *const *);
    using Compile = Status (*)(void *, int, const char *const *);
    using Size = Status (*)(void *, size_t *);
    using Get = Status (*)(void *, char *);
    const auto get = [&](const char *size_name, const char *get_name) {
        size_t size = 0;
        real<Size>(size_name)(program.real, &size);
        std::string text(size, '\0');
        real<Get>(get_name)(program.real, text.data());
        return text.substr(0, text.find('\0'));
    };
    if (const Status status = real<Create>("nvrtcCreateProgram")(&program.real, program.source.c_str(), nullptr, 0, nullptr, nullptr)) return status;
    const Status status = real<Compile>("nvrtcCompileProgram")(program.real, count, options);
    program.log = get("nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    if (status == SUCCESS) program.code = get("nvrtcGetPTXSize", "nvrtcGetPTX");
    return status;
}
} // namespace

extern "C" {
Status nvrtcVersion(int *major, int *minor) {
    const std::string version = setting("GROVE_CUDA_NVRTC"), kernels = setting("GROVE_CUDA_KERNELS");
    if (version.empty() && kernels != "run" && kernels != "count") {
        return real<Status (*)(int *, int *)>("nvrtcVersion")(major, minor);
    }
    const int number = version.empty() ? 1208 : atoi(version.c_str());
    *major = number / 100;
    *minor = number % 100;
    return SUCCESS;
}

const char *nvrtcGetErrorString(Status status) { return status == SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION"; }

Status nvrtcCreateProgram(Program **program, const char *source, const char *, int, const char *const *, const char *const *) {
    *program = new Program{source, "", ""};
    return SUCCESS;
}

Status nvrtcDestroyProgram(Program **program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

Status nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    const std::string kernels = setting("GROVE_CUDA_KERNELS"), sources = setting("GROVE_CUDA_SOURCES");
    Status status = SUCCESS;
    if (kernels == "run") {
        status = compile(*program);
    } else if (kernels == "count") {
        program->code = "count";
    } else {
        status = compile_really(*program, count, options);
    }
    if (!sources.empty()) {
        const std::string path = sources + "/" + kernel_name(program->source) + "." + hexadecimal(hash(program->source));
        std::ofstream(path + ".cu") << program->source;
        if (status != SUCCESS) std::ofstream(path + ".error") << program->log;
    }
    return status;
}

Status nvrtcGetPTXSize(Program *program, size_t *size) {
    *size = program->code.size() + 1;
    return SUCCESS;
}
Status nvrtcGetPTX(Program *program, char *code) {
    strcpy(code, program->code.c_str());
    return SUCCESS;
}
Status nvrtcGetProgramLogSize(Program *program, size_t *size) {
    *size = program->log.size() + 1;
    return SUCCESS;
}
Status nvrtcGetProgramLog(Program *program, char *log) {
    strcpy(log, program->log.c_str());
    return SUCCESS;
}
}
