/* CMake wants a shared library to have a source of its own; all of this one's comes from the layers. */
extern int isthmus_no_symbol_of_its_own;
