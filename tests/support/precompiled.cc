// CMake builds the test programs' precompiled headers with this source file.
