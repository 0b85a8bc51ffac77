/* What a platform lacks. Each has a macro of its own, so that tools/platforms.sh can compile and try
 * the branch without it here. */
#ifndef ELVI_PLATFORM_H
#define ELVI_PLATFORM_H

#ifdef _WIN32
#define ELVI_NO_DLSYM       /* OpenBLAS cannot be asked for by name */
#define ELVI_NO_YIELD       /* a thread that waits does so busily */
#define ELVI_NO_SIGNAL_MASK /* interrupts are no signals */
#define ELVI_COMMIT         /* _commit() in place of fsync() */
#endif

#endif
