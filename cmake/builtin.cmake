# The files of models/cephalo-small inside the library: generated/builtin_files.cc.
option(CEPHALO_BUILTIN_MODEL "Build the small trained model into the library (10 MB)" ON)

set(builtin_name cephalo-small)
set(builtin_folder ${PROJECT_SOURCE_DIR}/models/${builtin_name})
set(builtin_bytes)
set(builtin_spans ", {}, {}, {}, {}")
if(CEPHALO_BUILTIN_MODEL)
  set(builtin_spans)
  foreach(file config.json model.safetensors vocab.json merges.txt)
    set(path ${builtin_folder}/${file})
    if(NOT EXISTS ${path})
      message(FATAL_ERROR "${path} is missing; -DCEPHALO_BUILTIN_MODEL=OFF builds without a model")
    endif()
    # A new file is a new source: whatever caches objects by their source sees the difference.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(SIZE ${path} size)
    file(SHA256 ${path} hash)
    string(MAKE_C_IDENTIFIER cephalo_builtin_${file} symbol)
    string(APPEND builtin_bytes "
// ${file}: sha256 ${hash}
extern \"C\" const std::byte ${symbol}[] __asm__(\"${symbol}\");
asm(BEGIN_BYTES(\"${symbol}\")
    \".balign 64\\n\"
    \".globl ${symbol}\\n\" HIDE_BYTES(\"${symbol}\")
    \"${symbol}:\\n\"
    \".incbin \\\"${path}\\\"\\n\"
    SIZE_OF_BYTES(\"${symbol}\", \"${size}\") END_BYTES);
")
    string(APPEND builtin_spans ",\n          {${symbol}, ${size}}")
  endforeach()
endif()
configure_file(cmake/builtin_files.cc.in generated/builtin_files.cc @ONLY)
