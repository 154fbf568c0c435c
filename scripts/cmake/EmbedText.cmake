# cmake -DINPUT=page.html -DOUTPUT=page_source.inc -DNAME=page_source -P EmbedText.cmake: a C++ constant with the text of a file.
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "constexpr std::string_view ${NAME} = R\"text(${text})text\";\n")
