// Exists only so that includes resolve.
#error "the emulator has no tensor cores, and nothing that is newer"
