#include "platform.h"
#ifndef ELVI_COMMIT
#define _POSIX_C_SOURCE 200112L /* fsync */
#endif
#include "r_elvi.h"
#include <fcntl.h>
#include <stdio.h>
#ifdef ELVI_COMMIT
#include <io.h>
#define open_for_sync(path) _open(path, _O_RDWR)
#define sync_to_disk _commit
#define close _close
#else
#include <unistd.h>
#define open_for_sync(path) open(path, O_RDONLY)
#define sync_to_disk fsync
#endif

/* 16 hexadecimal digits for the bytes of a raw vector */
SEXP elvi_r_checksum(SEXP bytes)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long) elvi_checksum(RAW(bytes), (size_t) Rf_xlength(bytes)));
    return Rf_mkString(text);
}

/* Waits until a file, or where there is such a thing a directory, is on the disk. FALSE if that is not known. */
SEXP elvi_r_sync(SEXP path)
{
    const int file = open_for_sync(R_ExpandFileName(Rf_translateChar(STRING_ELT(path, 0))));
    if (file < 0) return Rf_ScalarLogical(FALSE);
    const int failed = sync_to_disk(file);
    close(file);
    return Rf_ScalarLogical(!failed);
}
