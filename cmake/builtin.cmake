# Files inside the library: those of models/cephalo-small in generated/builtin_files.cc, the font of
# pictures in generated/font_file.cc, the page and its engine in generated/page_files.cc.
option(CEPHALO_BUILTIN_MODEL "Build the small trained model into the library (10 MB)" ON)

# embed(PATH SYMBOL CODE SIZE): into CODE a line of C++ that puts a file under SYMBOL, into SIZE its
# bytes. A new file is a new source: whatever caches objects by their source sees the difference.
function(embed path symbol code size)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(SIZE ${path} bytes)
  file(SHA256 ${path} hash)
  set(${code} "\n// sha256 ${hash}\nCEPHALO_EMBED(${symbol}, \"${path}\", ${bytes});\n" PARENT_SCOPE)
  set(${size} ${bytes} PARENT_SCOPE)
endfunction()

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
    string(MAKE_C_IDENTIFIER cephalo_builtin_${file} symbol)
    embed(${path} ${symbol} code size)
    string(APPEND builtin_bytes "${code}")
    string(APPEND builtin_spans ",\n          {${symbol}, ${size}}")
  endforeach()
endif()
configure_file(cmake/builtin_files.cc.in generated/builtin_files.cc @ONLY)

embed(${PROJECT_SOURCE_DIR}/cephalo/view/fonts/DejaVuSansMono.ttf cephalo_font_file font_bytes font_size)
configure_file(cmake/font_file.cc.in generated/font_file.cc @ONLY)

embed(${PROJECT_SOURCE_DIR}/web/dist/page.html cephalo_page_html page_bytes page_size)
embed(${PROJECT_SOURCE_DIR}/web/dist/engine.wasm.deflate cephalo_page_engine engine_bytes engine_size)
configure_file(cmake/page_files.cc.in generated/page_files.cc @ONLY)
