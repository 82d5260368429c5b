// There so that the headers are complete.
#error "the emulator has no tensor cores, and nothing that is newer"
